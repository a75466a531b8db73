//! The documentation of the algorithms matches the plans and files.

#[path = "../examples/algorithms.rs"]
mod algorithms;

use std::fs::read_to_string;

#[test]
fn the_page_of_algorithms_matches_the_plans() {
    let committed = read_to_string(algorithms::PATH).expect("the page is there");
    let stale = "docs/algorithms.md is stale: run cargo run -p ripieno-plan --example algorithms -- --write";
    assert!(committed == algorithms::document(), "{stale}");
}

#[test]
fn the_page_on_adding_an_algorithm_shows_the_file_as_it_is() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = read_to_string(format!("{root}/../../docs/adding-an-algorithm.md")).expect("the page is there");
    let file = read_to_string(format!("{root}/src/algorithms/reduce/flat.rs")).expect("the file is there");
    assert!(page.contains(&format!("```rust,ignore\n{file}```")), "the page shows another algorithms/reduce/flat.rs");
}
