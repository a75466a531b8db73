//! Laws for irregular sizes: chunks of any length, including empty ones, and messages cut into segments.

use crate::common::DataLayout;
use proptest::prelude::*;
use ripieno_plan::catalogue::ALGORITHMS;
use ripieno_plan::check::check;
use ripieno_plan::simulate::segmented;
use ripieno_plan::{Needs, Op, promises};

/// Elements per chunk: often none, sometimes many.
fn counts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![Just(0), 1..4usize, 0..40usize], 1..14)
}

proptest! {
    #[test]
    fn every_algorithm_keeps_its_promise_for_chunks_of_any_size(
        counts in counts(),
        pairs in prop::collection::vec(0..5usize, 14 * 14),
        (root, peer) in (0..14usize, 0..14usize),
        op in prop::sample::select(Op::ALL.to_vec()),
        segment_bytes in 0..40usize,
    ) {
        let p = counts.len();
        let uneven = DataLayout::uneven(&counts, |from, to| pairs[from * 14 + to]);
        let equal = DataLayout::uneven(&counts, |_, _| pairs[0]);
        for algorithm in ALGORITHMS {
            let layout = if algorithm.needs == Needs::EqualChunks { &equal } else { &uneven };
            let requests = layout.requests(algorithm.collective(), root % p, peer % p, op);
            let Ok(plans) = algorithm.plans(&requests) else {
                prop_assert!(algorithm.needs == Needs::EvenWorld && p % 2 == 1, "{}", algorithm.name);
                continue;
            };
            let promises = promises(&requests);
            let uncut = check(&plans, &promises);
            prop_assert!(uncut.is_ok(), "{} {}: {:?}", algorithm.collective().name(), algorithm.name, uncut);
            let cut = check(&segmented(&plans, segment_bytes), &promises);
            prop_assert!(cut.is_ok(), "{} {}: {:?}", algorithm.collective().name(), algorithm.name, cut);
        }
    }
}
