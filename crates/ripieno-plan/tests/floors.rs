//! The floors of the house: what a crate may stand on, and what it may not touch, as ARCHITECTURE.md says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates of this workspace that each may depend on.
const BELOW: [(&str, &[&str]); 6] = [
    ("ripieno-plan", &[]),
    ("ripieno-kernels", &[]),
    ("ripieno-run", &["ripieno-plan"]),
    ("ripieno-net", &["ripieno-run"]),
    ("ripieno", &["ripieno-plan", "ripieno-run", "ripieno-net", "ripieno-kernels"]),
    ("ripieno-python", &["ripieno-kernels", "ripieno"]),
];

/// What a floor forbids: sockets, the operating system, and a clock other than an argument.
const FORBIDDEN: [(&str, &[&str]); 2] = [
    ("ripieno-plan", &["std::net", "std::os", "std::thread", "libc", "rustix", "Instant", "SystemTime"]),
    ("ripieno-run", &["std::net", "std::os", "libc", "rustix", "Instant::now", "SystemTime"]),
];

/// Tests that crates with links run: they measure, and so have a clock.
const CONFORMANCE: &str = "ripieno-run/src/conformance";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates stand beside each other").to_path_buf()
}

/// Crates of this workspace under `[dependencies]` of a crate.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
    let section = manifest.split("\n[").find_map(|section| section.strip_prefix("dependencies]")).unwrap_or("");
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("ripieno")).map(str::to_string).collect()
}

/// Source files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Uses of `words` in the code of a file, comments left out.
fn uses(path: &Path, words: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let code = text.lines().map(|line| line.split("//").next().unwrap_or(""));
    let found = |(number, line): (usize, &str)| {
        let word = words.iter().find(|word| line.contains(**word))?;
        Some(format!("{}:{}: {word}", path.display(), number + 1))
    };
    code.enumerate().filter_map(found).collect()
}

#[test]
fn a_crate_depends_on_crates_below_it_alone() {
    let folders = fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let below = BTreeMap::from(BELOW);
    for name in folders {
        let allowed = below.get(name.as_str()).unwrap_or_else(|| panic!("{name} stands on no floor"));
        for dependency in dependencies(&name) {
            assert!(allowed.contains(&dependency.as_str()), "{name} depends on {dependency}: expected {allowed:?}");
        }
    }
}

#[test]
fn floors_without_sockets_or_clocks_use_none() {
    for (name, words) in FORBIDDEN {
        let files = sources(&crates().join(name).join("src"));
        let measured = files.iter().filter(|path| !path.starts_with(crates().join(CONFORMANCE)));
        let found: Vec<String> = measured.flat_map(|path| uses(path, words)).collect();
        assert!(found.is_empty(), "{name} may not use {words:?}: {found:#?}");
    }
}

#[test]
fn what_a_file_uses_is_found_and_what_it_says_is_not() {
    let path = crates().join(CONFORMANCE).join("mod.rs");
    assert!(!uses(&path, &["Instant::now"]).is_empty());
    assert!(uses(&path, &["//!"]).is_empty());
}
