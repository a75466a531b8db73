//! Layers of the architecture: the allowed dependencies and the forbidden APIs of each crate, as described in
//! ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Allowed dependencies of each crate on crates of this workspace.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 11] = [
    ("ripieno-fuzz", &[]),
    ("ripieno-cores", &[]),
    ("ripieno-plan", &[]),
    ("ripieno-kernels", &["ripieno-cores"]),
    ("ripieno-sim", &["ripieno-plan"]),
    ("ripieno-reduce", &["ripieno-plan"]),
    ("ripieno-run", &["ripieno-plan", "ripieno-reduce"]),
    ("ripieno-net", &["ripieno-cores", "ripieno-run"]),
    ("ripieno", &["ripieno-plan", "ripieno-run", "ripieno-sim", "ripieno-net", "ripieno-kernels"]),
    ("ripieno-python", &["ripieno-kernels", "ripieno"]),
    ("ripieno-jni", &["ripieno-kernels", "ripieno"]),
];

/// Forbidden APIs: sockets, the operating system, and any clock that is not an argument.
const FORBIDDEN_APIS: [(&str, &[&str]); 4] = [
    ("ripieno-plan", &["std::net", "std::os", "std::thread", "libc", "rustix", "Instant", "SystemTime"]),
    ("ripieno-sim", &["std::net", "std::fs", "std::os", "std::thread", "libc", "rustix", "Instant", "SystemTime"]),
    ("ripieno-reduce", &["std::net", "std::fs", "std::os", "std::thread", "libc", "rustix", "Instant", "SystemTime"]),
    ("ripieno-run", &["std::net", "std::os", "libc", "rustix", "Instant::now", "SystemTime"]),
];

/// Tests that are run by crates with links. They measure time, so they use a clock.
const CONFORMANCE: &str = "ripieno-run/src/conformance";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate has a parent folder").to_path_buf()
}

/// Return the crates of this workspace under `[dependencies]` of a crate.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
    let section = manifest.split("\n[").find_map(|section| section.strip_prefix("dependencies]")).unwrap_or("");
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("ripieno")).map(str::to_string).collect()
}

/// Return the source files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Find the uses of `words` in the code of a file, without comments.
fn uses(path: &Path, words: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let code = text.lines().map(|line| line.split("//").next().unwrap_or(""));
    let found = |(number, line): (usize, &str)| {
        let word = words.iter().find(|word| line.contains(**word))?;
        Some(format!("{}:{}: {word}", path.display(), number + 1))
    };
    code.enumerate().filter_map(found).collect()
}

/// Return the modules that each top-level module of a crate uses, without the crate root.
fn used_modules(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let source = crates().join(name).join("src");
    let entries = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path());
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_string();
    let modules: BTreeMap<String, PathBuf> = entries.map(|path| (stem(&path), path)).collect();
    let used = |(module, path): (&String, &PathBuf)| {
        let files = if path.is_dir() { sources(path) } else { vec![path.clone()] };
        let is_used = |other: &&String| {
            let word = format!("crate::{other}::");
            *other != module && files.iter().any(|file| !uses(file, &[&word]).is_empty())
        };
        (module.clone(), modules.keys().filter(is_used).cloned().collect())
    };
    modules.iter().filter(|(module, _)| *module != "lib").map(used).collect()
}

/// Return modules with cyclic dependencies: the rest after repeated removal of modules that use only removed modules.
fn cyclic_modules(mut used: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let count = used.len();
        let left: BTreeSet<String> = used.keys().cloned().collect();
        used.retain(|_, others| !others.is_disjoint(&left));
        if used.len() == count {
            return used;
        }
    }
}

#[test]
fn modules_of_the_communicator_have_no_cyclic_dependencies() {
    let left = cyclic_modules(used_modules("ripieno"));
    assert!(left.is_empty(), "these modules have cyclic dependencies: {left:#?}");
}

#[test]
fn a_cycle_is_found_with_its_users() {
    let used = [("a", "b"), ("b", "a"), ("c", "a"), ("d", "e"), ("e", "no such module")];
    let used = used.map(|(module, other)| (module.to_string(), BTreeSet::from([other.to_string()])));
    let left: Vec<String> = cyclic_modules(BTreeMap::from(used)).into_keys().collect();
    assert_eq!(left, ["a", "b", "c"]);
}

#[test]
fn a_crate_depends_only_on_crates_of_lower_layers() {
    let folders = fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let allowed_dependencies = BTreeMap::from(ALLOWED_DEPENDENCIES);
    for name in folders {
        let allowed = allowed_dependencies.get(name.as_str()).unwrap_or_else(|| panic!("{name} has no layer"));
        for dependency in dependencies(&name) {
            assert!(allowed.contains(&dependency.as_str()), "{name} depends on {dependency}: expected {allowed:?}");
        }
    }
}

#[test]
fn lower_layers_use_no_sockets_and_no_clock() {
    for (name, words) in FORBIDDEN_APIS {
        let files = sources(&crates().join(name).join("src"));
        let checked = files.iter().filter(|path| !path.starts_with(crates().join(CONFORMANCE)));
        let found: Vec<String> = checked.flat_map(|path| uses(path, words)).collect();
        assert!(found.is_empty(), "{name} may not use {words:?}: {found:#?}");
    }
}

/// Line width of `rustfmt.toml`. The formatter does not enforce it for comments and string literals.
const LINE_WIDTH: usize = 120;

#[test]
fn no_line_is_wider_than_the_format_allows() {
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let wide = sources(&crates()).into_iter().filter(is_rust).flat_map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let wide = text.lines().enumerate().filter(|(_, line)| line.chars().count() > LINE_WIDTH);
        wide.map(|(number, _)| format!("{}:{}", path.display(), number + 1)).collect::<Vec<_>>()
    });
    assert_eq!(wide.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn imports_are_found_and_comments_are_ignored() {
    let path = crates().join(CONFORMANCE).join("mod.rs");
    assert!(!uses(&path, &["Instant::now"]).is_empty());
    assert!(uses(&path, &["//!"]).is_empty());
}
