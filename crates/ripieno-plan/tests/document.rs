//! The page on the algorithms is what the plans say.

#[path = "../examples/algorithms.rs"]
mod algorithms;

#[test]
fn the_page_on_the_algorithms_is_what_the_plans_say() {
    let committed = std::fs::read_to_string(algorithms::PATH).expect("the page is there");
    let stale = "docs/algorithms.md is stale: run cargo run -p ripieno-plan --example algorithms -- --write";
    assert!(committed == algorithms::document(), "{stale}");
}
