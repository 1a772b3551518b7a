//! Checks the dependency rules of ARCHITECTURE.md in the source of the crates: no file depends on one that depends on it,
//! no folder either, and no machine of the core. Privacy keeps the other rules: a machine's fields are its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path below `src`, such as `shard/flush`, and its source without comments and tests. Paths in it begin with
/// `crate`.
type Modules = BTreeMap<String, String>;
/// The dependencies of each module, each with the path that shows it.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Crates of several folders.
const LAYERED: &[&str] =
    &["bayeux", "encke", "encke-bench", "encke-cli", "encke-client", "encke-sources", "simulator", "websocket"];
/// The machines of the core, and their conductor.
const MACHINES: &[&str] =
    &["admission", "channels", "clients", "conflation", "delivery", "relief", "requests", "shard"];

#[test]
fn no_machine_of_the_core_depends_on_one_that_depends_on_it() {
    let edges = edges_of_folders("encke-core", |folder| MACHINES.contains(&folder));
    assert!(edges["shard"].len() == MACHINES.len() - 1, "the shard conducts {:?}", edges["shard"].keys());
    refuse_cycle("encke-core", &edges);
}

#[test]
fn no_folder_of_a_crate_depends_on_one_that_depends_on_it() {
    for name in LAYERED {
        let edges = edges_of_folders(name, |_| true);
        assert!(!edges.is_empty(), "no dependencies were found in {name}");
        refuse_cycle(name, &edges);
    }
}

#[test]
fn no_file_of_a_crate_depends_on_one_that_depends_on_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let names = fs::read_dir(crates).expect("the crates").map(|entry| entry.expect("an entry").file_name());
    let names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    assert!(names.len() >= 15, "only {} crates were found", names.len());
    for name in &names {
        let mut edges = Edges::new();
        for (module, used, path) in uses(&modules(name)) {
            edges.entry(module).or_default().entry(used).or_insert(path);
        }
        refuse_cycle(name, &edges);
    }
}

/// TLS and other ways of bytes need no change elsewhere.
#[test]
fn only_the_type_of_connections_names_a_socket() {
    let modules = modules("encke");
    let named = modules.iter().filter(|(_, source)| source.contains("TcpStream")).map(|(name, _)| name.as_str());
    assert_eq!(named.collect::<Vec<_>>(), ["byte_stream", "byte_stream/tls"]);
}

/// The dependencies among those folders of a crate that count.
fn edges_of_folders(name: &str, counts: impl Fn(&str) -> bool) -> Edges {
    let mut edges = Edges::new();
    let folder = |module: &str| module.split('/').next().unwrap_or_default().to_string();
    for (module, used, path) in uses(&modules(name)) {
        let (from, to) = (folder(&module), folder(&used));
        if from != to && counts(&from) && counts(&to) {
            edges.entry(from).or_default().entry(to).or_insert(format!("{path} in {module}"));
        }
    }
    edges
}

/// The sources of a crate but its `lib`, `main` and tests, and the name `""` for the paths that `lib` re-exports.
fn modules(name: &str) -> Modules {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let mut modules = Modules::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the sources").map(|entry| entry.expect("an entry").path()) {
            let name = entry.strip_prefix(&root).expect("below src").with_extension("");
            let name = name.to_str().expect("a name").replace("/mod", "");
            if entry.is_dir() {
                folders.push(entry);
            } else if name != "main" && !name.split('/').any(|part| part.ends_with("tests")) {
                let source = stripped(&fs::read_to_string(&entry).expect("a source"));
                modules.insert(if name == "lib" { String::new() } else { name.clone() }, absolute(&name, &source));
            }
        }
    }
    modules
}

/// The source without comments and the module of tests at the end.
fn stripped(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = source.lines().filter(|line| !line.starts_with("//")).map(|line| line.split(" //").next());
    code.flatten().collect::<Vec<_>>().join("\n")
}

/// The source of a module with `super::` and `self::` as paths from `crate`; in `lib`, re-exports, too.
fn absolute(module: &str, source: &str) -> String {
    if module == "lib" {
        return source.replace("pub use ", "pub use crate::").replace("crate::crate::", "crate::");
    }
    let segments: Vec<&str> = module.split('/').collect();
    let ancestor = |up: usize| format!("crate::{}::", segments[..segments.len() - up].join("::")).replace("::::", "::");
    let mut source = source.replace("self::", &ancestor(0));
    for up in (1..=segments.len()).rev() {
        source = source.replace(&"super::".repeat(up), &ancestor(up));
    }
    source
}

/// Each module with one that it uses, and the path that shows it.
fn uses(modules: &Modules) -> Vec<(String, String, String)> {
    let exported = modules.get("").map(|lib| paths(lib)).unwrap_or_default();
    let exports = exported.iter().filter_map(|path| Some((path.rsplit_once("::")?.1, path)));
    let exports: BTreeMap<&str, &String> = exports.collect();
    let mut uses = Vec::new();
    for (name, source) in modules.iter().filter(|(name, _)| !name.is_empty()) {
        for path in paths(source) {
            let first = path.split("::").next().unwrap_or_default();
            let segments: Vec<&str> = exports.get(first).copied().unwrap_or(&path).split("::").collect();
            let known = (1..=segments.len()).rev().map(|count| segments[..count].join("/"));
            if let Some(used) = known.into_iter().find(|used| modules.contains_key(used)).filter(|used| used != name) {
                uses.push((name.clone(), used, format!("crate::{path}")));
            }
        }
    }
    uses
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

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Panics with a cycle as `a -> b -> a`, each arrow with the path that causes it.
fn refuse_cycle(name: &str, edges: &Edges) {
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
    if let Some(cycle) = edges.keys().find_map(|module| search(module, edges, &mut Vec::new(), &mut done)) {
        panic!("a cycle in {name}: {cycle}");
    }
}
