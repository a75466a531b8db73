//! The documentation of the algorithms matches the plans and files.

#[path = "../examples/algorithms.rs"]
mod algorithms;

use std::fs::read_to_string;

#[test]
fn the_page_of_algorithms_matches_the_plans() {
    let committed = read_to_string(algorithms::PATH).expect("the page exists");
    let stale = "docs/algorithms.md is stale: run cargo run -p ripieno-plan --example algorithms -- --write";
    assert!(committed == algorithms::document(), "{stale}");
}

#[test]
fn the_page_on_adding_an_algorithm_contains_the_current_file() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = read_to_string(format!("{root}/../../docs/adding-an-algorithm.md")).expect("the page exists");
    let file = read_to_string(format!("{root}/src/algorithms/reduce/flat.rs")).expect("the file exists");
    assert!(
        page.contains(&format!("```rust,ignore\n{file}```")),
        "docs/adding-an-algorithm.md does not contain the current algorithms/reduce/flat.rs"
    );
}
