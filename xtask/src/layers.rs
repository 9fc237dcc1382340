//! Which module imports which: no arrow may run up, and no two folders may need each other.
//!
//! A module of a crate's top level is a node, with all files below it; in a second graph each
//! module of the server's engine is one. An arrow is a path in the source that names another node:
//! in a `use`, a type, an expression or a macro's arguments. Tests are left out, as they may look
//! at the whole. What the root exports counts as its module's.
//!
//! And how much lies at the top level of a crate: what is more than a dozen wants folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bobbin_testkit::peers::repository;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemImpl, ItemUse, Macro, Meta, Type, UseTree};

use crate::shell::TaskResult;

/// The layers of the server, each of which uses only those before it.
const LAYERS: [&[&str]; 11] = [
    &["base"],
    &["config"],
    &["system"],
    &["engine"],
    &["commands"],
    &["persistence"],
    &["replication"],
    &["worker"],
    &["admin"],
    &["process"],
    &["embedded"],
];
/// Likewise of the engine. Folders of one layer need each other.
const ENGINE_LAYERS: [&[&str]; 12] = [
    &["buffers"],
    &["row"],
    &["telemetry"],
    &["acl"],
    &["clients"],
    &["log"],
    &["lazyfree"],
    &["blocking", "client", "command", "pubsub", "script", "server", "tracking"],
    &["eviction"],
    &["execution"],
    &["evaluation"],
    &["defrag"],
];
/// What a newcomer can take in at once: entries at a crate's top level.
const ENTRIES_MAX: usize = 12;

/// What a crate's top-level modules need of each other, or the modules of one of its folders.
#[derive(Default)]
struct Graph {
    /// The folder, as a path from the crate's root.
    folder: Vec<String>,
    nodes: BTreeSet<String>,
    /// What lies in the folder of the sources.
    entries: Vec<String>,
    /// What the root exports, and of which node it is.
    exported: BTreeMap<String, String>,
    /// From a node to another one: the files in which it is named, and as what.
    arrows: BTreeMap<(String, String), Vec<String>>,
    /// Likewise: where a node gives methods to a type of the other one.
    methods: BTreeMap<(String, String), Vec<String>>,
}

/// Adds a fault for each arrow that must not be there.
pub(crate) fn check(faults: &mut Vec<String>) -> TaskResult {
    for (name, graph) in graphs()? {
        if name == "server" {
            faults.extend(graph.against(&LAYERS));
        }
        faults.extend(crowded(&format!("crates/{name}/src"), &graph.entries));
        for cycle in graph.cycles() {
            faults.push(format!("crates/{name}: a cycle of imports: {}", cycle.join(", ")));
        }
    }
    faults.extend(engine()?.against(&ENGINE_LAYERS));
    Ok(())
}

/// Prints the graphs as Mermaid draws them.
pub(crate) fn show() -> TaskResult {
    let engine = ("server/engine".to_owned(), engine()?);
    for (name, graph) in graphs()?.into_iter().chain([engine]) {
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

/// The graph of the server's engine.
fn engine() -> Result<Graph, String> {
    const SOURCE: &str = "crates/server/src/engine";
    Graph::of_folder(&repository().join(SOURCE), SOURCE, &["engine"])
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

/// The text of a file, which faults call `shown`.
fn read(file: &Path, shown: &str) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))
}

fn parse(shown: &str, text: &str) -> Result<syn::File, String> {
    syn::parse_file(text).map_err(|error| format!("{shown}: {error}"))
}

/// What there is to say if a folder of sources has more entries than a reader can take in.
fn crowded(shown: &str, entries: &[String]) -> Option<String> {
    let count = entries.iter().filter(|entry| !UNCOUNTED.contains(&entry.as_str())).count();
    (count > ENTRIES_MAX)
        .then(|| format!("{shown}: {count} entries, more than {ENTRIES_MAX}: group them"))
}

/// Lists the names that a `use` of the root makes, each with the module that it is from. `node` is
/// the first module of the path up to here.
fn list_names(tree: &UseTree, node: Option<&str>, names: &mut Vec<(String, String)>) {
    let name = match tree {
        UseTree::Path(path) => {
            let part = path.ident.to_string();
            let part = Some(part.as_str()).filter(|part| !["crate", "self"].contains(part));
            return list_names(&path.tree, node.or(part), names);
        }
        UseTree::Group(group) => {
            return group.items.iter().for_each(|tree| list_names(tree, node, names));
        }
        UseTree::Name(name) => &name.ident,
        UseTree::Rename(rename) => &rename.rename,
        UseTree::Glob(_) => return,
    };
    if let Some(node) = node {
        names.push((name.to_string(), node.to_owned()));
    }
}

impl Graph {
    /// Of the crate whose sources lie in `folder`; `shown` is how faults name that.
    fn of(folder: &Path, shown: &str) -> Result<Self, String> {
        let mut graph = Self::with_nodes(folder, &[])?;
        for root in ["lib.rs", "main.rs"] {
            if graph.entries.iter().any(|entry| entry == root) {
                let text = read(&folder.join(root), &format!("{shown}/{root}"))?;
                graph.export(&format!("{shown}/{root}"), &text)?;
            }
        }
        graph.read(folder, shown, &[])?;
        Ok(graph)
    }

    /// Of a folder, which is the module `path` of its crate.
    fn of_folder(folder: &Path, shown: &str, path: &[&str]) -> Result<Self, String> {
        let mut graph = Self::with_nodes(folder, path)?;
        let path = graph.folder.clone();
        graph.read(folder, shown, &path)?;
        Ok(graph)
    }

    /// Without arrows yet.
    fn with_nodes(folder: &Path, path: &[&str]) -> Result<Self, String> {
        let entries = list(folder)?;
        let nodes = entries.iter().map(|entry| entry.strip_suffix(".rs").unwrap_or(entry));
        let nodes = nodes.filter(|node| !ROOTS.contains(node)).map(str::to_owned).collect();
        let folder = path.iter().map(|&part| part.to_owned()).collect();
        Ok(Self { folder, nodes, entries, ..Self::default() })
    }

    /// Takes in the files of a folder, which is the module `path`.
    fn read(&mut self, folder: &Path, shown: &str, path: &[String]) -> TaskResult {
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
                self.add(&shown, &inner, &read(&file, &shown)?)?;
            }
        }
        Ok(())
    }

    /// Takes in what the root, which is this file, exports.
    fn export(&mut self, shown: &str, text: &str) -> TaskResult {
        for item in parse(shown, text)?.items {
            let Item::Use(item) = item else { continue };
            let mut names = Vec::new();
            list_names(&item.tree, None, &mut names);
            let known = names.into_iter().filter(|(_, node)| self.nodes.contains(node));
            self.exported.extend(known.collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Takes in a file, which is the module `path`.
    fn add(&mut self, shown: &str, path: &[String], text: &str) -> TaskResult {
        let file = parse(shown, text)?;
        let mut named = Named { path: path.to_vec(), ..Named::default() };
        named.visit_file(&file);
        let Some(from) = path.get(self.folder.len()) else { return Ok(()) };
        for target in &named.paths {
            let Some(to) = self.node_of(target).filter(|&to| to != from) else { continue };
            let place = format!("{shown}: {}", target.join("::"));
            self.arrows.entry((from.clone(), to.clone())).or_default().push(place);
        }
        for name in &named.methods {
            let home = named.paths.iter().find(|target| target.last() == Some(name));
            let node = home.and_then(|target| self.node_of(target));
            if let Some(of) = node.filter(|&node| node != from) {
                let place = format!("{shown}: methods of {name}, which is of another layer");
                self.methods.entry((from.clone(), of.clone())).or_default().push(place);
            }
        }
        Ok(())
    }

    /// The node that a path from the crate's root leads to.
    fn node_of<'a>(&'a self, target: &'a [String]) -> Option<&'a String> {
        let first = target.strip_prefix(&*self.folder)?.first()?;
        self.nodes.get(first).or_else(|| self.exported.get(first))
    }

    /// What is against layers: arrows from one to another behind it, methods for types of another
    /// one, modules of none, and modules in a layer of several that need none of the others, or
    /// that none of them needs.
    fn against(&self, layers: &[&[&str]]) -> Vec<String> {
        let rank = |node: &String| layers.iter().position(|layer| layer.contains(&&**node));
        let unknown = self.nodes.iter().filter(|node| rank(node).is_none());
        let mut faults: Vec<_> = unknown.map(|node| format!("{node}: give it a layer")).collect();
        for ((from, to), places) in &self.arrows {
            if rank(from) < rank(to) {
                let fault = |place: &String| format!("{place}: {from} is a layer below {to}");
                faults.extend(places.iter().map(fault));
            }
        }
        // A layer could do behind another one's back what it may not import.
        let others = self.methods.iter().filter(|((from, of), _)| rank(from) != rank(of));
        faults.extend(others.flat_map(|(_, places)| places).cloned());
        let cycles = self.cycles();
        for layer in layers.iter().filter(|layer| layer.len() > 1) {
            let is_in_cycle = |node: &&&str| cycles.iter().flatten().any(|other| other == **node);
            let alone = layer.iter().filter(|node| !is_in_cycle(node));
            faults.extend(alone.map(|node| format!("{node}: give it a layer of its own")));
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
const ROOTS: [&str; 6] = ["lib", "main", "mod", "bin", "tests", "simulation"];
/// Entries that do not count: a crate has them because it is one.
const UNCOUNTED: [&str; 5] = ["lib.rs", "main.rs", "bin", "tests", "tests.rs"];
/// Modules that hold tests alone.
const TESTS: [&str; 3] = ["tests", "testdata", "simulation"];

/// What a file names, as paths from the crate's root.
#[derive(Default)]
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
            assert!(!graph.against(&[&["low"], &["high"]]).is_empty(), "{text}");
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
            assert_eq!(graph.against(&[&["low"], &["high"]]), Vec::<String>::new(), "{text}");
            assert_eq!(graph.cycles().len(), 0, "{text}");
        }
    }

    #[test]
    fn methods_belong_to_the_layer_of_their_type() {
        let of =
            |text: &str| graph(&[("low", ""), ("high/a", text)]).against(&[&["low"], &["high"]]);
        assert_eq!(of("use crate::low::Thing; impl Thing { fn f() {} }").len(), 1);
        assert_eq!(of("use crate::low::Thing; impl Clone for Thing {}"), [""; 0]);
        assert_eq!(of("use super::Thing; impl Thing { fn f() {} }"), [""; 0]);
    }

    /// The graph of the folder `engine`.
    fn engine(files: &[(&str, &str)]) -> Graph {
        let mut graph = Graph { folder: vec!["engine".to_owned()], ..Graph::default() };
        let path = |file: &str| format!("engine/{file}").split('/').map(str::to_owned).collect();
        let paths: Vec<Vec<String>> = files.iter().map(|(file, _)| path(file)).collect();
        graph.nodes = paths.iter().map(|path| path[1].clone()).collect();
        for ((file, text), path) in files.iter().zip(&paths) {
            graph.add(file, path, text).expect("it is Rust");
        }
        graph
    }

    #[test]
    fn an_arrow_up_within_the_engine_is_found() {
        let layers: [&[&str]; 3] = [&["row"], &["client", "server"], &["execution"]];
        let against = |file, text| {
            let server = ("server", "use crate::engine::{client, row};");
            let client = ("client", "use super::server;");
            engine(&[("row", ""), server, client, ("execution", ""), (file, text)]).against(&layers)
        };
        for (file, text) in [
            ("row/flags", "use crate::engine::server::Server;"),
            ("row", "use super::client;"),
            ("client/name", "use super::super::execution::Run;"),
            ("client/name", "fn f() { crate::engine::execution::run(); }"),
            ("server/end", "use crate::engine::row::Facts; impl Facts { fn f() {} }"),
            ("execution/run", "use crate::engine::server::Server; impl Server { fn f() {} }"),
        ] {
            assert_eq!(against(file, text).len(), 1, "{file}: {text}");
        }
        for (file, text) in [
            ("execution/run", "use crate::engine::{client, row, server};"),
            ("client/name", "use crate::engine::server::Server; impl Server { fn f() {} }"),
            ("row", "use crate::base::server; use self::execution::f;"),
        ] {
            assert_eq!(against(file, text), [""; 0], "{file}: {text}");
        }
    }

    #[test]
    fn what_need_not_share_a_layer_has_one_of_its_own() {
        let graph = engine(&[("client", "use super::row;"), ("row", "")]);
        let alone = ["client", "row"].map(|node| format!("{node}: give it a layer of its own"));
        assert_eq!(graph.against(&[&["client", "row"]]), alone);
    }

    #[test]
    fn what_the_root_exports_leads_to_its_module() {
        for (root, text) in [
            ("pub use high::Thing;", "use crate::Thing;"),
            ("pub use self::high::inner::{self, Other as Thing};", "use crate::{Thing, low};"),
            ("use crate::high::{Thing, Other};", "fn f(thing: &super::Thing) {}"),
        ] {
            let mut graph = graph(&[("low", ""), ("high", "use crate::low;")]);
            graph.export("lib.rs", root).expect("it is Rust");
            graph.add("low", &["low".to_owned()], text).expect("it is Rust");
            assert_eq!(graph.cycles(), [["high", "low"]], "{root} {text}");
        }
        let mut graph = graph(&[("low", ""), ("high", "use crate::low;")]);
        graph.export("lib.rs", "pub use std::Thing; pub use low::Other;").expect("it is Rust");
        let own = "use crate::{Thing, Other};";
        graph.add("low", &["low".to_owned()], own).expect("it is Rust");
        assert_eq!(graph.cycles().len(), 0);
    }

    #[test]
    fn more_than_a_dozen_entries_are_a_crowd() {
        let mut entries: Vec<String> = (0..12).map(|number| format!("{number}.rs")).collect();
        entries.extend(["lib.rs", "main.rs", "bin", "tests", "tests.rs"].map(str::to_owned));
        assert_eq!(crowded("src", &entries), None);
        entries.push("folder".to_owned());
        let fault = crowded("src", &entries);
        assert_eq!(fault.as_deref(), Some("src: 13 entries, more than 12: group them"));
    }

    #[test]
    fn a_module_without_a_layer_is_a_fault() {
        assert_eq!(graph(&[("new", "")]).against(&[&["low"]]), ["new: give it a layer"]);
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
