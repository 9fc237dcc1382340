//! Links between the documents: each leads to a file that is there, and to a heading that it has.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use bobbin_testkit::peers::repository;

/// A link of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentLink {
    /// Where its target stands in the text.
    pub at: usize,
    /// As it is written: `other.md#heading`.
    pub target: String,
}

/// Links that lead nowhere, in these documents of the repository.
pub(crate) fn check(documents: &HashMap<&str, String>, faults: &mut Vec<String>) {
    let anchors: HashMap<&str, HashSet<String>> =
        documents.iter().map(|(file, text)| (*file, anchors(text))).collect();
    for (file, text) in documents {
        for DocumentLink { at, target } in links(text) {
            let line = text[..at].lines().count();
            let fault = |reason: &str| format!("{file}:{line}: {target}: {reason}");
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let Some(path) = resolve(file, path) else {
                faults.push(fault("it leads out of the repository"));
                continue;
            };
            if !repository().join(&path).exists() {
                faults.push(fault("there is no such file"));
                continue;
            }
            let known = path.to_str().and_then(|path| anchors.get(path));
            if !anchor.is_empty() && known.is_some_and(|known| !known.contains(anchor)) {
                faults.push(fault("there is no such heading"));
            }
        }
    }
    faults.sort();
}

/// Rust files that documents name as code, and that the repository does not have. A name may leave
/// out the first folders: `persistence/walk.rs`.
pub(crate) fn check_code(
    documents: &HashMap<&str, String>,
    listed: &str,
    faults: &mut Vec<String>,
) {
    let is_there = |name: &str| {
        let has_name = |file: &str| {
            file.strip_suffix(name)
                .is_some_and(|folders| folders.is_empty() || folders.ends_with('/'))
        };
        listed.lines().any(has_name)
    };
    for (file, text) in documents {
        for (index, line) in text.lines().enumerate() {
            let code = line.split('`').skip(1).step_by(2);
            for name in code.filter(|code| code.ends_with(".rs") && !code.contains([' ', '*'])) {
                if !is_there(name) {
                    faults.push(format!("{file}:{}: {name}: there is no such file", index + 1));
                }
            }
        }
    }
    faults.sort();
}

/// The file that a link in `file` means, from the repository's root. An empty path is `file`.
pub(crate) fn resolve(file: &str, path: &str) -> Option<PathBuf> {
    if path.is_empty() {
        return Some(file.into());
    }
    let mut resolved = Path::new(file).parent()?.to_path_buf();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => {
                if !resolved.pop() {
                    return None;
                }
            }
            Component::Normal(name) => resolved.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(resolved)
}

/// The links to places in the repository, images among them.
pub(crate) fn links(text: &str) -> Vec<DocumentLink> {
    let plain = without_code(text);
    let mut links = Vec::new();
    for (found, _) in plain.match_indices("](") {
        let at = found + 2;
        let Some(len) = plain[at..].find([')', ' ', '\n']) else { continue };
        let target = &text[at..at + len];
        if !target.contains(':') {
            links.push(DocumentLink { at, target: target.to_owned() });
        }
    }
    links
}

/// What headings can be linked to by, as Git hosts and mdBook name them.
fn anchors(text: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for line in fenceless(text) {
        let Some(title) = line.trim_start_matches('#').strip_prefix(' ') else { continue };
        if !line.starts_with('#') {
            continue;
        }
        let name = anchor(title);
        let count = seen.entry(name.clone()).or_default();
        anchors.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    anchors
}

fn anchor(title: &str) -> String {
    let mut anchor = String::new();
    for letter in title.trim().chars() {
        match letter {
            ' ' => anchor.push('-'),
            '-' | '_' => anchor.push(letter),
            letter if letter.is_alphanumeric() => anchor.extend(letter.to_lowercase()),
            _ => {}
        }
    }
    anchor
}

/// The lines that are in no fenced block.
fn fenceless(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The text with spaces for what is code, so that places stay the same.
fn without_code(text: &str) -> String {
    let blank = |part: &str| -> String {
        part.chars().flat_map(|c| std::iter::repeat_n(' ', c.len_utf8())).collect()
    };
    let mut plain = String::with_capacity(text.len());
    let (mut in_fence, mut in_code) = (false, false);
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        let is_fence = content.trim_start().starts_with("```");
        in_fence ^= is_fence;
        // Code within a paragraph may go on in the next line, but ends with the paragraph.
        in_code &= !content.is_empty() && !is_fence;
        if in_fence || is_fence {
            plain.push_str(&blank(content));
        } else {
            for (at, part) in content.split('`').enumerate() {
                if at > 0 {
                    in_code = !in_code;
                    plain.push('`');
                }
                plain.push_str(&if in_code { blank(part) } else { part.to_owned() });
            }
        }
        plain.push_str(&line[content.len()..]);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(documents: &[(&'static str, &str)]) -> Vec<String> {
        let documents = documents.iter().map(|(file, text)| (*file, (*text).to_owned())).collect();
        let mut faults = Vec::new();
        check(&documents, &mut faults);
        faults
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let readme = "# The `first`, twice\n\n# A_b c\n# A_b c\n";
        let good = "[a](../README.md#the-first-twice) [b](../README.md#a_b-c-1) [c](#own)\n# Own\n\
                    [out](https://example.com/x#y) `[no](link)`\n```\n[no](link)\n# No\n```\n";
        assert_eq!(faults(&[("README.md", readme), ("docs/cli.md", good)]), [""; 0]);
        let bad = "[a](../README.md#second)\n[b](nothing.md)\n[c](../../x)\n[d](#no)\n";
        let expected = [
            "docs/cli.md:1: ../README.md#second: there is no such heading",
            "docs/cli.md:2: nothing.md: there is no such file",
            "docs/cli.md:3: ../../x: it leads out of the repository",
            "docs/cli.md:4: #no: there is no such heading",
        ];
        assert_eq!(faults(&[("README.md", readme), ("docs/cli.md", bad)]), expected);
    }

    #[test]
    fn files_of_code_that_a_document_names_are_there() {
        let text = "`a.rs` and\n`src/b.rs`, `b.rs`, `rc/b.rs`, `c.rs`, but `*.rs`\n";
        let documents = HashMap::from([("README.md", text.to_owned())]);
        let mut faults = Vec::new();
        check_code(&documents, "a.rs\nx/src/b.rs\n", &mut faults);
        let expected = ["c.rs", "rc/b.rs"];
        let expected = expected.map(|name| format!("README.md:2: {name}: there is no such file"));
        assert_eq!(faults, expected);
    }

    #[test]
    fn paths_are_resolved_from_the_documents_folder() {
        let resolved = |file, path| resolve(file, path).map(|path| path.display().to_string());
        assert_eq!(resolved("docs/a.md", "../b.md").unwrap(), "b.md");
        assert_eq!(resolved("docs/a.md", "./c/d.md").unwrap(), "docs/c/d.md");
        assert_eq!(resolved("a.md", "").unwrap(), "a.md");
        assert_eq!(resolved("a.md", "../b.md"), None);
    }
}
