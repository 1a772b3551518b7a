//! Checks the dependency rules of ARCHITECTURE.md in the source of the crates: no module of the core, and no folder of
//! another crate, depends on one that depends on it.
//!
//! Parts of the core (all folders but `shard`) depend on each other by the paths they use. Chapters (`shard/*`) are
//! methods of a shard or of its parts, so they depend on each other by the methods they call. Neither may have a cycle, and no part may
//! depend on the shard. In other crates, files depend on each other by paths, and folders by those of their files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path below `src`, such as `shard/flush`, and its source without comments and tests. Paths in it begin with
/// `crate`.
type Modules = BTreeMap<String, String>;
/// The dependencies of each module, each with the path or the method that shows it.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Crates of several folders.
const LAYERED: &[&str] =
    &["bayeux", "encke", "encke-bench", "encke-cli", "encke-client", "encke-sources", "simulator", "websocket"];

#[test]
fn no_module_of_the_core_depends_on_one_that_depends_on_it() {
    let modules = modules("encke-core");
    let mut edges = Edges::new();
    let methods = methods_of(&["Shard", "Parts"], &modules);
    assert!(methods.len() > 150, "only {} methods of Shard were found", methods.len());
    for (name, used, path) in uses(&modules) {
        assert!(is_of_shard(&name) || !is_of_shard(&used), "the part {name} knows the shard: {path}");
        if !is_of_shard(&used) {
            edges.entry(name).or_default().entry(used).or_insert(path);
        }
    }
    add_calls(modules.iter().filter(|(name, _)| is_of_shard(name)), &methods, &mut edges);
    refuse_cycle("encke-core", &edges);
}

#[test]
fn no_chapter_of_the_simulator_calls_one_that_calls_it() {
    let modules = modules("simulator");
    let methods = methods_of(&["World"], &modules);
    assert!(methods.len() > 150, "only {} methods of World were found", methods.len());
    let mut edges = Edges::new();
    add_calls(modules.iter(), &methods, &mut edges);
    refuse_cycle("simulator", &edges);
}

#[test]
fn no_folder_of_a_crate_depends_on_one_that_depends_on_it() {
    for name in LAYERED {
        let mut edges = Edges::new();
        let folder = |module: &str| module.split('/').next().unwrap_or_default().to_string();
        for (module, used, path) in uses(&modules(name)) {
            let (from, to) = (folder(&module), folder(&used));
            if from != to {
                edges.entry(from).or_default().entry(to).or_insert(format!("{path} in {module}"));
            }
        }
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
    assert_eq!(named.collect::<Vec<_>>(), ["byte_stream", "byte_stream/upgraded"]);
}

fn is_of_shard(module: &str) -> bool {
    module == "shard" || module.starts_with("shard/")
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

/// The methods of these types, each with its chapter.
fn methods_of(types: &[&str], modules: &Modules) -> BTreeMap<String, String> {
    let mut methods = BTreeMap::new();
    for (name, source) in modules {
        let mut is_inside = false;
        for line in source.lines() {
            let begins = line.strip_prefix("impl ").and_then(|line| line.strip_suffix(" {"));
            is_inside = (is_inside || begins.is_some_and(|name| types.contains(&name))) && !line.starts_with('}');
            let declared = line.strip_prefix("    ").filter(|line| is_inside && !line.starts_with(' '));
            if let Some((_, rest)) = declared.and_then(|line| line.split_once("fn ")) {
                let end = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
                methods.insert(rest[..end].to_string(), name.clone());
            }
        }
    }
    methods
}

/// Adds an edge for each call of a method in another chapter.
fn add_calls<'m>(
    chapters: impl Iterator<Item = (&'m String, &'m String)>,
    methods: &BTreeMap<String, String>,
    edges: &mut Edges,
) {
    for (name, source) in chapters {
        for method in called_methods(source) {
            if let Some(used) = methods.get(method).filter(|used| *used != name) {
                edges.entry(name.clone()).or_default().entry(used.clone()).or_insert(format!("{method}()"));
            }
        }
    }
}

/// A shard and its parts, as chapters call their methods. Of the simulator's world it is `self`.
const RECEIVERS: [&str; 7] =
    ["self", "shard", "parts", "parts()", "beside_burst()", "settle_burst()", "settle_burst_at(now)"];

/// The methods called on a shard or on its parts.
fn called_methods(source: &str) -> Vec<&str> {
    let mut called = Vec::new();
    for (at, _) in source.match_indices('.') {
        let before = source[..at].trim_end();
        let end = source[at + 1..].find(|c: char| !is_of_name(c)).map_or(source.len(), |end| at + 1 + end);
        let is_call = source[end..].starts_with('(');
        if is_call && RECEIVERS.iter().any(|receiver| before.ends_with(receiver)) {
            called.push(&source[at + 1..end]);
        }
    }
    called
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

/// Panics with a cycle as `a -> b -> a`, each arrow with the path or method that causes it.
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
