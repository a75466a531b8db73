//! Textbook tables: every algorithm for 3 to 5 ranks, compared with the files in `tests/tables/`.
//!
//! After an intended change, run with `RIPIENO_WRITE_TABLES=1` and review the difference.

mod common;

use common::{DataLayout, topologies};
use ripieno_plan::table::table;
use ripieno_plan::{Algorithm, Collective, Needs, Op, Order, PlacementUse, Topology};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

#[test]
fn every_algorithm_has_its_textbook_table() {
    for collective in Collective::catalogued() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/tables/{}.txt", collective.name()));
        let tables: String = Algorithm::of(collective).map(tables_of).collect();
        if std::env::var_os("RIPIENO_WRITE_TABLES").is_some() {
            std::fs::write(&path, &tables).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        assert_eq!(tables, committed, "{} differs from {}", collective.name(), path.display());
    }
}

fn tables_of(algorithm: &Algorithm) -> String {
    let mut text = String::new();
    for p in if algorithm.needs == Needs::EvenWorld { [2, 4, 6] } else { [3, 4, 5] } {
        let layout = DataLayout::for_algorithm(algorithm, p, 2 * p);
        let plans = match algorithm.placement {
            // Two ranks per node.
            PlacementUse::TwoLevels => {
                let nodes = (0..p).map(|rank| rank / 2).collect();
                let requests = layout.requests(algorithm.collective(), 1, 0, Op::Sum);
                topologies::plans(algorithm, &Arc::new(Topology::new(nodes, vec![0; p])), Order::Racks, &requests)
            }
            PlacementUse::Ignored | PlacementUse::Ordered => layout.plans(algorithm, 1),
        };
        let rows = table(&plans).unwrap();
        writeln!(text, "{} {}, p = {p}\n{rows}", algorithm.collective().name(), algorithm.name).unwrap();
    }
    text
}
