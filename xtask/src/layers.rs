//! Which module imports which: no arrow may run up, and no two folders may need each other.
//!
//! A module of a crate's top level is a node, with all files below it. An arrow is a path in the
//! source that names another node: in a `use`, a type, an expression or a macro's arguments. Tests
//! are left out, as they may look at the whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bobbin_testkit::peers::repository;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemImpl, ItemUse, Macro, Meta, Type, UseTree};

use crate::shell::Outcome;

/// The layers of the server, each of which uses only those before it.
const LAYERS: [&str; 10] = [
    "base",
    "config",
    "system",
    "engine",
    "commands",
    "persistence",
    "worker",
    "admin",
    "process",
    "embedded",
];
/// Cycles that are left: nothing may be added to one.
const CYCLES: &[(&str, &[&str])] = &[
    ("cli", &["command", "modes", "repl", "session"]),
];

/// What a crate's top-level modules need of each other.
#[derive(Default)]
struct Graph {
    nodes: BTreeSet<String>,
    /// From a node to another one: the files in which it is named, and as what.
    arrows: BTreeMap<(String, String), Vec<String>>,
    faults: Vec<String>,
}

/// Adds a fault for each arrow that must not be there.
pub(crate) fn check(faults: &mut Vec<String>) -> Outcome {
    for (name, graph) in graphs()? {
        if name == "server" {
            faults.extend(graph.faults.iter().cloned());
            faults.extend(graph.upward(&LAYERS));
        }
        for cycle in graph.cycles() {
            let is_known = |(known, nodes): &&(&str, &[&str])| {
                *known == name && cycle.iter().all(|node| nodes.contains(&node.as_str()))
            };
            if !CYCLES.iter().any(|known| is_known(&known)) {
                faults.push(format!("crates/{name}: a cycle of imports: {}", cycle.join(", ")));
            }
        }
    }
    Ok(())
}

/// Prints the graphs as Mermaid draws them.
pub(crate) fn show() -> Outcome {
    for (name, graph) in graphs()? {
        println!("%% {name}\ngraph TD");
        for ((from, to), places) in &graph.arrows {
            println!("    {from} -->|{}| {to}", places.len());
        }
        for cycle in graph.cycles() {
            println!("    %% a cycle: {}", cycle.join(", "));
        }
    }
    Ok(())
}

/// The graph of every crate, by name.
fn graphs() -> Result<Vec<(String, Graph)>, String> {
    let crates = repository().join("crates");
    let mut names: Vec<String> = list(&crates)?;
    names.sort();
    let graph = |name: String| {
        let source = crates.join(&name).join("src");
        let graph = Graph::of(&source, &format!("crates/{name}/src"))?;
        Ok((name, graph))
    };
    names.into_iter().map(graph).collect()
}

/// The names of what a folder holds.
fn list(folder: &Path) -> Result<Vec<String>, String> {
    let cannot = |error| format!("{}: {error}", folder.display());
    fs::read_dir(folder)
        .map_err(cannot)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, _>>()
        .map_err(cannot)
}

impl Graph {
    /// Of the crate whose sources lie in `folder`; `shown` is how faults name that.
    fn of(folder: &Path, shown: &str) -> Result<Self, String> {
        let mut graph = Self::default();
        for entry in list(folder)? {
            let node = entry.strip_suffix(".rs").unwrap_or(&entry).to_owned();
            if !ROOTS.contains(&node.as_str()) {
                graph.nodes.insert(node);
            }
        }
        graph.read(folder, shown, &[])?;
        Ok(graph)
    }

    /// Takes in the files of a folder, which is the module `path`.
    fn read(&mut self, folder: &Path, shown: &str, path: &[String]) -> Outcome {
        for entry in list(folder)? {
            let file = folder.join(&entry);
            let shown = format!("{shown}/{entry}");
            let name = entry.strip_suffix(".rs").unwrap_or(&entry).to_owned();
            if TESTS.contains(&name.as_str()) || path.is_empty() && ROOTS.contains(&name.as_str()) {
                continue;
            }
            let mut inner = path.to_vec();
            if name != "mod" {
                inner.push(name);
            }
            if file.is_dir() {
                self.read(&file, &shown, &inner)?;
            } else if entry.ends_with(".rs") {
                let text =
                    fs::read_to_string(&file).map_err(|error| format!("{shown}: {error}"))?;
                self.add(&shown, &inner, &text)?;
            }
        }
        Ok(())
    }

    /// Takes in a file, which is the module `path`.
    fn add(&mut self, shown: &str, path: &[String], text: &str) -> Outcome {
        let file = syn::parse_file(text).map_err(|error| format!("{shown}: {error}"))?;
        let mut named = Named { path: path.to_vec(), paths: Vec::new(), methods: Vec::new() };
        named.visit_file(&file);
        let Some(from) = path.first() else { return Ok(()) };
        for target in &named.paths {
            let Some(to) = target.first().filter(|&to| to != from && self.nodes.contains(to))
            else {
                continue;
            };
            let place = format!("{shown}: {}", target.join("::"));
            self.arrows.entry((from.clone(), to.clone())).or_default().push(place);
        }
        // A layer could do behind another one's back what it may not import.
        for name in &named.methods {
            let home = named.paths.iter().find(|target| target.last() == Some(name));
            let node = home.and_then(|target| target.first());
            if node.is_some_and(|node| node != from && self.nodes.contains(node)) {
                self.faults.push(format!("{shown}: methods of {name}, which is of another layer"));
            }
        }
        Ok(())
    }

    /// Arrows from a layer to one behind it, and modules that are no layer.
    fn upward(&self, layers: &[&str]) -> Vec<String> {
        let rank = |node: &String| layers.iter().position(|layer| layer == node);
        let unknown = self.nodes.iter().filter(|node| rank(node).is_none());
        let mut faults: Vec<_> = unknown.map(|node| format!("{node}: give it a layer")).collect();
        for ((from, to), places) in &self.arrows {
            if rank(from) < rank(to) {
                let fault = |place: &String| format!("{place}: {from} is a layer below {to}");
                faults.extend(places.iter().map(fault));
            }
        }
        faults
    }

    /// Sets of nodes of which each reaches each.
    fn cycles(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<_, _> =
            self.nodes.iter().map(|node| (node, self.reached_from(node))).collect();
        let mut cycles = BTreeSet::new();
        for node in &self.nodes {
            let both = |other: &&&String| {
                reached[node].contains(**other) && reached[**other].contains(node)
            };
            let cycle: Vec<String> =
                reached[node].iter().filter(both).map(|&o| o.clone()).collect();
            if cycle.len() > 1 {
                cycles.insert(cycle);
            }
        }
        cycles.into_iter().collect()
    }

    /// The nodes that arrows lead to from a node, over others as well.
    fn reached_from<'a>(&'a self, start: &'a String) -> BTreeSet<&'a String> {
        let (mut reached, mut left) = (BTreeSet::new(), vec![start]);
        while let Some(node) = left.pop() {
            for (from, to) in self.arrows.keys() {
                if from == node && reached.insert(to) {
                    left.push(to);
                }
            }
        }
        reached
    }
}

/// Files that put the modules together: they name all of them.
const ROOTS: [&str; 5] = ["lib", "main", "bin", "tests", "simulation"];
/// Modules that hold tests alone.
const TESTS: [&str; 3] = ["tests", "testdata", "simulation"];

/// What a file names, as paths from the crate's root.
struct Named {
    /// The file's own module.
    path: Vec<String>,
    paths: Vec<Vec<String>>,
    /// Types that it gives methods.
    methods: Vec<String>,
}

impl Named {
    /// Notes a path as it is written, if it leads to a module of the crate.
    fn note(&mut self, written: &[String]) {
        let (mut base, mut rest) = (self.path.clone(), written);
        match rest.first().map(String::as_str) {
            Some("crate") => base.clear(),
            Some("self") => {}
            Some("super") => {
                while let Some(("super", behind)) =
                    rest.split_first().map(|(first, behind)| (first.as_str(), behind))
                {
                    base.pop();
                    rest = behind;
                }
                base.extend(rest.iter().cloned());
                return self.paths.push(base);
            }
            _ => return,
        }
        base.extend(rest[1..].iter().cloned());
        self.paths.push(base);
    }

    fn note_tree(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        let name = match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(before, &path.tree);
                before.pop();
                return;
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_tree(before, tree);
                }
                return;
            }
            UseTree::Name(name) => name.ident.to_string(),
            UseTree::Rename(rename) => rename.ident.to_string(),
            UseTree::Glob(_) => return self.note(before),
        };
        if name != "self" {
            before.push(name);
        }
        self.note(before);
        before.truncate(before.len() - usize::from(!tree_is_self(tree)));
    }

    /// A macro's arguments are no paths yet.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut written: Vec<String> = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(name) if written.last().is_some_and(|last| last != ":") => {
                    self.note_written(&mut written);
                    written.push(name.to_string());
                }
                TokenTree::Ident(name) => {
                    written.retain(|word| word != ":");
                    written.push(name.to_string());
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !written.is_empty() => {
                    written.push(":".to_owned());
                }
                TokenTree::Group(group) => {
                    self.note_written(&mut written);
                    self.note_tokens(group.stream());
                }
                _ => self.note_written(&mut written),
            }
        }
        self.note_written(&mut written);
    }

    fn note_written(&mut self, written: &mut Vec<String>) {
        written.retain(|word| word != ":");
        self.note(written);
        written.clear();
    }
}

fn tree_is_self(tree: &UseTree) -> bool {
    matches!(tree, UseTree::Name(name) if name.ident == "self")
}

/// Whether something is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.contains("test") && !condition.contains("not")
        }
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Named {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let attributes: &[Attribute] = match statement {
            syn::Stmt::Local(local) => &local.attrs,
            syn::Stmt::Expr(syn::Expr::If(branch), _) => &branch.attrs,
            syn::Stmt::Expr(syn::Expr::Block(block), _) => &block.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.note_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if item.trait_.is_none()
            && let Type::Path(path) = &*item.self_ty
            && let Some(last) = path.path.segments.last()
        {
            self.methods.push(last.ident.to_string());
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let written: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.note(&written);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.note_tokens(call.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        let path = |file: &str| file.split('/').map(str::to_owned).collect::<Vec<_>>();
        graph.nodes = files.iter().map(|(file, _)| path(file)[0].clone()).collect();
        for (file, text) in files {
            graph.add(file, &path(file), text).expect("it is Rust");
        }
        graph
    }

    #[test]
    fn an_arrow_up_is_found_wherever_it_is_written() {
        for text in [
            "use crate::high::Thing;",
            "use crate::{low, high::{self, Other}};",
            "use super::high;",
            "fn f(thing: &crate::high::Thing) {}",
            "fn f() { crate::high::call(); }",
            "fn f() { println!(\"{}\", crate::high::NUMBER); }",
            "fn f() { assert!(matches!(1, crate::high::NUMBER)); }",
        ] {
            let graph = graph(&[("low", text), ("high", "use crate::low;")]);
            assert!(!graph.upward(&["low", "high"]).is_empty(), "{text}");
            assert_eq!(graph.cycles(), [["high", "low"]], "{text}");
        }
        for text in [
            "use crate::low::high;",
            "use self::high::Thing;",
            "// crate::high",
            "const TEXT: &str = \"crate::high\";",
            "#[cfg(test)] mod tests { use crate::high::Thing; }",
            "impl Thing { #[cfg(test)] fn f() { crate::high::call(); } }",
            "fn f() { #[cfg(all(test, unix))] if crate::high::is() {} }",
        ] {
            let graph = graph(&[("low", text), ("high", "use crate::low;")]);
            assert_eq!(graph.upward(&["low", "high"]), Vec::<String>::new(), "{text}");
            assert_eq!(graph.cycles().len(), 0, "{text}");
        }
    }

    #[test]
    fn methods_belong_to_the_layer_of_their_type() {
        let of = |text: &str| graph(&[("low", ""), ("high/a", text)]).faults;
        assert_eq!(of("use crate::low::Thing; impl Thing { fn f() {} }").len(), 1);
        assert_eq!(of("use crate::low::Thing; impl Clone for Thing {}"), [""; 0]);
        assert_eq!(of("use super::Thing; impl Thing { fn f() {} }"), [""; 0]);
    }

    #[test]
    fn a_module_without_a_layer_is_a_fault() {
        assert_eq!(graph(&[("new", "")]).upward(&["low"]), ["new: give it a layer"]);
    }

    #[test]
    fn a_cycle_over_three_is_one() {
        let graph = graph(&[
            ("a", "use crate::b;"),
            ("b", "use crate::c;"),
            ("c", "use crate::a;"),
            ("d", "use crate::a;"),
        ]);
        assert_eq!(graph.cycles(), [["a", "b", "c"]]);
    }
}
