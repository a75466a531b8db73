//! Measurement of packet costs, and the curve that a communicator stores.

use ripieno::design::PacketCurve;
use ripieno::net::ThreadFabric;
use ripieno::{Communicator, Error, packets};
use std::time::Duration;

fn world<R: Send>(p: usize, program: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    let fabrics = ThreadFabric::group(p).unwrap();
    std::thread::scope(|scope| {
        let start = |fabric| scope.spawn(|| program(&Communicator::new(Box::new(fabric))));
        let ranks: Vec<_> = fabrics.into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn all_ranks_measure_the_same_curve() {
    for p in [2, 5, 11] {
        let sizes = [64, 1024, 16 << 10];
        let curves = world(p, |comm| packets::measure(comm, &sizes, Duration::from_millis(50)).unwrap());
        let measured: Vec<f64> = curves[0].points().iter().map(|point| point.0).collect();
        assert_eq!(measured, sizes.map(|bytes| bytes as f64)[..measured.len()], "{p} ranks");
        assert!(curves.iter().all(|curve| *curve == curves[0]), "{p} ranks");
    }
}

#[test]
fn two_sizes_are_measured_without_a_budget() {
    let curves = world(3, |comm| packets::measure(comm, &packets::SIZES_BYTES, Duration::ZERO).unwrap());
    assert_eq!(curves[0].points().len(), 2);
}

#[test]
fn a_communicator_uses_default_costs_until_measured_ones_are_set() {
    world(2, |comm| {
        assert_eq!(comm.packets(), PacketCurve::memory());
        let measured = PacketCurve::line(1.0, 2.0, 3.0);
        comm.keep_packets(measured.clone());
        assert_eq!(comm.packets(), measured);
    });
}

#[test]
fn invalid_sizes_are_rejected_before_anything_is_sent() {
    let of = |p: usize, sizes: &'static [usize]| {
        world(p, |comm| packets::measure(comm, sizes, Duration::ZERO).unwrap_err()).swap_remove(0)
    };
    assert!(matches!(of(1, &[8, 16]), Error::Argument { name: "world_size", .. }));
    for sizes in [&[][..], &[8], &[0, 8], &[16, 8]] {
        assert!(matches!(of(2, sizes), Error::Argument { name: "sizes_bytes", .. }), "{sizes:?}");
    }
}
