//! Laws of sparse reductions, for every number of ranks and every factorization of it.

mod common;

use common::butterflies::{Configured, Keys, configured, shapes};
use ripieno_plan::checker::{check, check_rendezvous};
use ripieno_plan::sparse::Degrees;
use ripieno_plan::{Buffer, Op, Plan, Promise, Span};
use std::collections::BTreeSet;

const ROW_BYTES: usize = 8;

fn row() -> Span {
    Span::whole(Buffer::MAIN, 2, 4)
}

/// Every ordered factorization of every number of ranks, and those of numbers with folded ranks.
fn worlds() -> impl Iterator<Item = Degrees> {
    (1..=33).flat_map(|p| {
        let folded = Degrees::all_smooth(p).into_iter().filter(|degrees| degrees.folded() > 0);
        Degrees::all(p).into_iter().chain(folded)
    })
}

fn plans(configured: &Configured, op: Op) -> Vec<Plan> {
    configured.routes.iter().map(|routes| routes.plan(ROW_BYTES, 4, op)).collect()
}

/// The keys that somebody wants and nobody contributes.
fn missing(keys: &Keys) -> BTreeSet<u64> {
    let there: BTreeSet<u64> = keys.outs.iter().flatten().copied().collect();
    keys.ins.iter().flatten().copied().filter(|key| !there.contains(key)).collect()
}

#[test]
fn every_wanted_row_gets_every_contribution_once_and_missing_ones_are_zero() {
    for (seed, degrees) in worlds().enumerate() {
        for (turn, (shape, keys)) in shapes(degrees.world_size(), seed as u64).into_iter().enumerate() {
            let dense_above = [0.0, 0.5, f64::INFINITY][(seed + turn) % 3];
            let op = [Op::Sum, Op::Min][(seed + turn) % 2];
            let configured = configured(&degrees, &keys, dense_above);
            let plans = plans(&configured, op);
            let promises: Vec<Promise> =
                keys.ins.iter().map(|wanted| Promise::sparse(&keys.outs, wanted, row(), op)).collect();
            let what = || format!("{degrees}, {shape}, dense above {dense_above}: {keys:?}");
            check(&plans, &promises).unwrap_or_else(|fault| panic!("{}: {fault}", what()));
            check_rendezvous(&plans).unwrap_or_else(|fault| panic!("{}: {fault}", what()));

            let expected = missing(&keys);
            let count: u64 = configured.missing.iter().map(|missing| missing.count).sum();
            assert_eq!(count, expected.len() as u64, "{}", what());
            for missing in &configured.missing {
                assert_eq!(missing.examples.len() as u64, missing.count.min(10), "{}", what());
                assert!(missing.examples.iter().all(|key| expected.contains(key)), "{}", what());
            }
        }
    }
}
