//! Checks the dependency rules of ARCHITECTURE.md in the source: no module of the core depends on one that depends on
//! it.
//!
//! Parts (all folders but `shard`) depend on each other by the paths they use. Chapters (`shard/*`) are methods of one
//! type, so they depend on each other by the methods they call. Neither may have a cycle, and no part may depend on the
//! shard.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path below `src`, such as `shard/flush`, and its source without comments, strings and tests.
type Modules = BTreeMap<String, String>;
/// The dependencies of each module, each with the path or the method that shows it.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn no_module_depends_on_one_that_depends_on_it() {
    let modules = modules();
    let mut edges = Edges::new();
    let methods = methods_of_shard(&modules);
    assert!(methods.len() > 150, "only {} methods of Shard were found", methods.len());
    for (name, source) in &modules {
        let is_chapter = is_of_shard(name);
        for path in paths(source) {
            let Some(used) = module_of(&path, &modules) else { continue };
            assert!(is_chapter || !is_of_shard(&used), "the part {name} knows the shard: crate::{path}");
            if used != *name && !is_of_shard(&used) {
                edges.entry(name.clone()).or_default().entry(used).or_insert(format!("crate::{path}"));
            }
        }
        if is_chapter {
            for method in called_methods(source) {
                if let Some(used) = methods.get(method).filter(|used| *used != name) {
                    edges.entry(name.clone()).or_default().entry(used.clone()).or_insert(format!("{method}()"));
                }
            }
        }
    }
    if let Some(cycle) = cycle(&modules, &edges) {
        panic!("a cycle: {cycle}");
    }
}

fn is_of_shard(module: &str) -> bool {
    module == "shard" || module.starts_with("shard/")
}

fn modules() -> Modules {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut modules = Modules::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the sources").map(|entry| entry.expect("an entry").path()) {
            let name = entry.strip_prefix(&root).expect("below src").with_extension("");
            let name = name.to_str().expect("a name").replace("/mod", "");
            if entry.is_dir() {
                folders.push(entry);
            } else if name != "lib" && !name.split('/').any(|part| part == "tests") {
                modules.insert(name, stripped(&fs::read_to_string(&entry).expect("a source")));
            }
        }
    }
    modules
}

/// The source without comments, string contents, and the module of tests at the end.
fn stripped(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    code.split('"').step_by(2).collect()
}

/// The methods of the shard, each with its chapter.
fn methods_of_shard(modules: &Modules) -> BTreeMap<String, String> {
    let mut methods = BTreeMap::new();
    for (name, source) in modules {
        let mut is_of_shard = false;
        for line in source.lines() {
            is_of_shard = (is_of_shard || line.starts_with("impl Shard {")) && !line.starts_with('}');
            let declared = line.strip_prefix("    ").filter(|line| is_of_shard && !line.starts_with(' '));
            if let Some((_, rest)) = declared.and_then(|line| line.split_once("fn ")) {
                let end = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
                methods.insert(rest[..end].to_string(), name.clone());
            }
        }
    }
    methods
}

/// The methods called on `self` or on a `shard`.
fn called_methods(source: &str) -> Vec<&str> {
    let mut called = Vec::new();
    for (at, _) in source.match_indices('.') {
        let before = source[..at].trim_end();
        let end = source[at + 1..].find(|c: char| !is_of_name(c)).map_or(source.len(), |end| at + 1 + end);
        let is_call = source[end..].starts_with('(');
        if is_call && (before.ends_with("self") || before.ends_with("shard")) {
            called.push(&source[at + 1..end]);
        }
    }
    called
}

/// The paths within the crate that a source uses, without `crate::`.
fn paths(source: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for (at, start) in source.match_indices("crate::") {
        let rest = &source[at + start.len()..];
        let end = rest.find(|c: char| !is_of_name(c) && c != ':').unwrap_or(rest.len());
        let (path, rest) = rest.split_at(end);
        match rest.strip_prefix('{').and_then(|group| group.split_once('}')) {
            Some((names, _)) => paths.extend(names.split(',').map(|name| format!("{path}{}", name.trim()))),
            None => _ = paths.insert(path.to_string()),
        }
    }
    paths
}

/// The module that a path leads to; None for items of the parts that the crate's root re-exports.
fn module_of(path: &str, modules: &Modules) -> Option<String> {
    let segments: Vec<&str> = path.split("::").collect();
    let known = (1..=segments.len()).rev().map(|count| segments[..count].join("/"));
    let is_shards = ["Shard", "Shared", "Wire", "Taken"].contains(&segments[0]);
    if is_shards { Some("shard".into()) } else { known.into_iter().find(|name| modules.contains_key(name)) }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A cycle as `a -> b -> a`, each arrow with the path or method that causes it.
fn cycle(modules: &Modules, edges: &Edges) -> Option<String> {
    fn search(at: &str, edges: &Edges, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<String> {
        if let Some(begin) = way.iter().position(|passed| passed == at) {
            let mut nodes = way[begin..].to_vec();
            nodes.push(at.to_string());
            let arrow = |pair: &[String]| format!("{} -[{}]-> ", pair[0], edges[&pair[0]][&pair[1]]);
            return Some(nodes.windows(2).map(arrow).collect::<String>() + at);
        }
        if !done.contains(at) {
            way.push(at.to_string());
            for next in edges.get(at).into_iter().flat_map(BTreeMap::keys) {
                if let Some(cycle) = search(next, edges, way, done) {
                    return Some(cycle);
                }
            }
            way.pop();
            done.insert(at.to_string());
        }
        None
    }
    let mut done = BTreeSet::new();
    modules.keys().find_map(|module| search(module, edges, &mut Vec::new(), &mut done))
}
