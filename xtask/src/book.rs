//! The documentation as a site, made by mdBook: `cargo xtask book`.
//!
//! The documents stay where they are, and link to each other as files of the repository, so that
//! they can be read on any Git host. The book's source is a copy with the same folders:
//! `docs/SUMMARY.md` lists its pages, in their order. What a page links to beside other pages is
//! copied, too; a link to a folder, or to a document that is no page, becomes plain text.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use bobbin_testkit::peers::{cache_folder, repository};

use crate::links::{self, DocumentLink};
use crate::shell::{self, TaskResult};
use crate::{spelling, tidy};

/// Checks the documents, and makes the site in `target/book`.
pub(crate) fn run() -> TaskResult {
    tidy::check_documents()?;
    spelling::check()?;
    let program = install()?;
    let (source, site) =
        (repository().join("target/book-source"), repository().join("target/book"));
    for folder in [&source, &site] {
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(|error| error.to_string())?;
        }
    }
    write_source(&source)?;
    shell::run(Command::new(program).arg("build").arg(&source).arg("--dest-dir").arg(&site))?;
    check_site(&site)?;
    println!("{}", site.join("index.html").display());
    Ok(())
}

/// Documents of `docs` that the book does not have.
pub(crate) fn check_summary<'a>(
    files: impl Iterator<Item = &'a str>,
    faults: &mut Vec<String>,
) -> TaskResult {
    let pages: HashSet<PathBuf> = pages()?.into_iter().collect();
    for file in files.filter(|file| file.starts_with("docs/") && file.ends_with(".md")) {
        if file != SUMMARY && !pages.contains(Path::new(file)) {
            faults.push(format!("{file}: {SUMMARY} does not have it"));
        }
    }
    Ok(())
}

/// mdBook in the cache, of the version that this was made for. Its build takes some minutes, once.
fn install() -> Result<PathBuf, String> {
    let folder = cache_folder().join("mdbook");
    let program = folder.join("bin/mdbook");
    let version = shell::output(Command::new(&program).arg("--version"));
    if !version.is_ok_and(|version| version.trim() == format!("mdbook v{MDBOOK}")) {
        let mut install = shell::cargo(&["install", "--locked", "mdbook", "--version", MDBOOK]);
        install.args(["--no-default-features", "--features", "search", "--root"]).arg(&folder);
        // Not beside the project's own.
        install.env("CARGO_TARGET_DIR", folder.join("target"));
        shell::run(&mut install).map_err(|error| format!("cannot install mdBook: {error}"))?;
        let _ = std::fs::remove_dir_all(folder.join("target"));
    }
    Ok(program)
}

/// The documents that the book has, from the repository's root.
fn pages() -> Result<Vec<PathBuf>, String> {
    let summary = shell::read(&repository().join(SUMMARY))?;
    let links = links::links(&summary).into_iter();
    Ok(links.filter_map(|link| links::resolve(SUMMARY, &link.target)).collect())
}

fn write_source(folder: &Path) -> TaskResult {
    let pages = pages()?;
    let mut files = BTreeSet::new();
    for page in &pages {
        let text = shell::read(&repository().join(page))?;
        let text = rewrite(page, &text, &pages, &mut files);
        place(&folder.join("src").join(book_path(page)), &text)?;
    }
    // The list itself becomes one of the root's.
    let summary = shell::read(&repository().join(SUMMARY))?;
    let summary = replace_links(&summary, |target| {
        let page = links::resolve(SUMMARY, target)?;
        Some(Some(book_path(&page).display().to_string()))
    });
    place(&folder.join("src/SUMMARY.md"), &summary)?;
    for file in files {
        let to = folder.join("src").join(&file);
        shell::create_folder(to.parent().unwrap_or(&to))?;
        std::fs::copy(repository().join(&file), &to)
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    shell::write(&folder.join("colours.css"), COLOURS)?;
    shell::write(&folder.join("book.toml"), CONFIGURATION)
}

/// A page with its links as the book needs them; `files` gets what else they lead to.
fn rewrite(page: &Path, text: &str, pages: &[PathBuf], files: &mut BTreeSet<PathBuf>) -> String {
    replace_links(text, |target| {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = links::resolve(page.to_str()?, path)?;
        if path.is_empty() {
            return None;
        }
        if pages.contains(&file) {
            let path = Path::new(path).with_file_name(book_path(&file).file_name()?);
            let hash = if anchor.is_empty() { "" } else { "#" };
            return Some(Some(format!("{}{hash}{anchor}", path.display())));
        }
        if file.extension().is_some_and(|end| end == "md") || repository().join(&file).is_dir() {
            return Some(None);
        }
        files.insert(file);
        None
    })
}

/// The text with other targets of its links. `change` answers `None` for a link that stays, and
/// `Some(None)` for one that becomes text.
fn replace_links(text: &str, mut change: impl FnMut(&str) -> Option<Option<String>>) -> String {
    let mut replaced = text.to_owned();
    // From the end on, so that places before stay what they are.
    for DocumentLink { at, target } in links::links(text).into_iter().rev() {
        match change(&target) {
            None => {}
            Some(Some(target_in_book)) => {
                replaced.replace_range(at..at + target.len(), &target_in_book);
            }
            Some(None) => {
                let Some(open) = text[..at].rfind('[') else { continue };
                // The closing bracket, and the target in its parentheses.
                replaced.replace_range(at - 2..=at + target.len(), "");
                replaced.replace_range(open..=open, "");
            }
        }
    }
    replaced
}

/// Where a page is in the book: mdBook calls a folder's first page `index`.
fn book_path(page: &Path) -> PathBuf {
    match page.file_name() {
        Some(name) if name == "README.md" => page.with_file_name("index.md"),
        _ => page.to_path_buf(),
    }
}

fn place(path: &Path, text: &str) -> TaskResult {
    shell::create_folder(path.parent().unwrap_or(path))?;
    shell::write(path, text)
}

/// Links of the pages as they were made, which lead nowhere.
fn check_site(site: &Path) -> TaskResult {
    let mut files = Vec::new();
    collect(site, &mut files)?;
    let pages = files.iter().filter(|file| file.extension().is_some_and(|end| end == "html"));
    let read = |page: &PathBuf| Ok((page.clone(), shell::read(page)?));
    let pages: HashMap<PathBuf, String> = pages.map(read).collect::<Result<_, String>>()?;
    let names: HashMap<&Path, HashSet<&str>> =
        pages.iter().map(|(page, text)| (&**page, attributes(text, "id").collect())).collect();
    let mut faults = Vec::new();
    for (page, text) in &pages {
        for target in attributes(text, "href").chain(attributes(text, "src")) {
            if target.contains(':') || target.is_empty() {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = page.parent().unwrap_or(site).join(path);
            let file = if path.is_empty() { page.clone() } else { normal(&file) };
            let is_named = |names: &HashSet<&str>| anchor.is_empty() || names.contains(anchor);
            if !file.is_file() || !names.get(&*file).is_none_or(is_named) {
                faults.push(format!("{}: {target} leads nowhere", page.display()));
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            other => normal.push(other),
        }
    }
    normal
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> TaskResult {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {name}=\"");
    let starts: Vec<usize> =
        text.match_indices(&opening).map(|(at, found)| at + found.len()).collect();
    starts.into_iter().filter_map(|start| text[start..].split('"').next())
}

const SUMMARY: &str = "docs/SUMMARY.md";
const MDBOOK: &str = "0.5.4";
/// The preprocessors would expand braces in the texts, and rename pages, which is done here.
const CONFIGURATION: &str = r#"
[book]
title = "Bobbin"
language = "en"

[build]
use-default-preprocessors = false

[output.html]
smart-punctuation = false
additional-css = ["colours.css"]
input-404 = ""

[output.html.print]
enable = false

[output.html.fold]
enable = true
level = 0
"#;
/// Links, which stand out too little as mdBook has them.
const COLOURS: &str = "\
.content main :is(p, li, td) a:any-link { text-decoration: underline; }
.navy { --links: #7ab7ff; --sidebar-active: #7ab7ff; }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_as_the_book_needs_them() {
        let pages = ["README.md", "docs/cli.md", "docs/adr/README.md"].map(PathBuf::from);
        let mut files = BTreeSet::new();
        let text = "[a](../README.md#x), [b](adr/README.md), ![c](scaling.svg), [`d` e](../tests),\n\
                    [f](../fuzz/x.md) [g](#g) [h](https://example.com) `[i](j)`";
        let expected = "[a](../index.md#x), [b](adr/index.md), ![c](scaling.svg), `d` e,\n\
                        f [g](#g) [h](https://example.com) `[i](j)`";
        assert_eq!(rewrite(Path::new("docs/cli.md"), text, &pages, &mut files), expected);
        assert_eq!(files, BTreeSet::from([PathBuf::from("docs/scaling.svg")]));
    }
}
