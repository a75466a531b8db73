//! Ranks that are threads satisfy the same requirements as processes.

use crate::common::{header, next_failure, send_and_receive};
use ripieno_net::ThreadFabric;
use ripieno_plan::Collective;
use ripieno_run::{Blocking, Fabric, JobFailure};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);

#[test]
fn every_pair_of_threads_exchanges_bytes() {
    for world_size in [1, 2, 3, 5] {
        std::thread::scope(|scope| {
            for mut fabric in ThreadFabric::group(world_size).unwrap() {
                scope.spawn(move || send_and_receive(&mut fabric));
            }
        });
    }
}

#[test]
fn a_panic_is_the_failure_of_its_rank_on_all_others() {
    let mut fabrics = ThreadFabric::group(3).unwrap();
    let culprit = fabrics.pop().unwrap();
    let panicked = std::thread::spawn(move || {
        let _held = culprit;
        panic!("on purpose");
    });
    for fabric in &mut fabrics {
        let Some(JobFailure::RankFailed { rank, cause, .. }) = next_failure(fabric, TIMEOUT) else { panic!() };
        assert_eq!((rank, cause.as_str()), (2, "its thread panicked"));
    }
    assert!(panicked.join().is_err());
}

#[test]
fn a_mismatch_and_an_early_leaver_are_reported_to_all() {
    let mut fabrics = ThreadFabric::group(3).unwrap();
    for (fabric, collective) in fabrics.iter_mut().zip([Collective::Barrier, Collective::Barrier, Collective::Gather]) {
        fabric.enter(0, &header(7, collective).encode());
    }
    fabrics[0].stalled(header(7, Collective::Barrier), &[1], Blocking::All);
    assert!(!fabrics[0].has_failed());
    fabrics[0].stalled(header(7, Collective::Barrier), &[1, 2], Blocking::All);
    for fabric in &mut fabrics {
        let Some(JobFailure::Mismatch { description }) = next_failure(fabric, TIMEOUT) else { panic!() };
        assert!(description.starts_with("collective 7: ranks 0-1 called barrier; rank 2 called gather"));
    }

    let mut fabrics = ThreadFabric::group(2).unwrap();
    drop(fabrics.pop());
    fabrics[0].stalled(header(0, Collective::Barrier), &[1], Blocking::All);
    let failure = next_failure(&mut fabrics[0], TIMEOUT).unwrap().to_string();
    assert!(failure.contains("rank 1") && failure.contains("left the job before collective 0"), "{failure}");
}
