//! Ranks on several nodes and racks: two-level algorithms, rank orders and overrides.

use ripieno::net::ThreadFabric;
use ripieno::{Algorithm, BufferMemory, Collective, Communicator, Element, Error, JobFailure, Op, Overrides, Topology};

/// Nodes of unequal size with non-consecutive ranks, in three racks.
fn scattered() -> Topology {
    Topology::new(vec![0, 1, 0, 2, 3, 2, 1, 2, 4], vec![0, 1, 0, 0, 2, 0, 1, 0, 1])
}

/// Two nodes of two ranks each.
fn grid() -> Topology {
    Topology::new(vec![0, 0, 1, 1], vec![0, 0, 0, 0])
}

fn world<R: Send>(topology: Topology, program: impl Fn(&mut Communicator) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ThreadFabric::placed(topology)
            .unwrap()
            .into_iter()
            .map(|fabric| scope.spawn(|| program(&mut Communicator::new(Box::new(fabric)))))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn bytes(values: impl Iterator<Item = u32>) -> Vec<u8> {
    values.flat_map(u32::to_ne_bytes).collect()
}

/// Return the contribution of `rank`.
fn contribution(rank: usize, length: usize) -> Vec<u8> {
    bytes((0..length as u32).map(|i| 1000 * rank as u32 + i))
}

fn sum(p: usize, length: usize) -> Vec<u8> {
    bytes((0..length as u32).map(|i| (0..p as u32).map(|rank| 1000 * rank + i).sum()))
}

/// Run and check each collective that supports two levels, with `algorithm` and vectors of `length` elements.
fn check_all(comm: &mut Communicator, length: usize, algorithm: Option<&str>) {
    let (rank, p) = (comm.rank(), comm.world_size());
    let (each, total) = (length / p, length / p * p);
    let counts = vec![each; p];
    let chunk = |of: usize| 4 * each * of..4 * each * (of + 1);

    let mut vector = contribution(rank, length);
    comm.allreduce(&mut vector, Element::U32, Op::Sum, algorithm).unwrap();
    assert_eq!(vector, sum(p, length), "allreduce by {algorithm:?}");
    for root in 0..p {
        let mut vector = contribution(rank, length);
        comm.broadcast(BufferMemory::Write(&mut vector), Element::U32, root, algorithm).unwrap();
        assert_eq!(vector, contribution(root, length), "broadcast by {algorithm:?}");
        let mut vector = contribution(rank, length);
        comm.reduce(&mut vector, Element::U32, Op::Sum, root, algorithm).unwrap();
        assert!(rank != root || vector == sum(p, length), "reduce by {algorithm:?}");
    }
    let mut vector = contribution(rank, total);
    comm.allgather(&mut vector, Element::U32, &counts, algorithm).unwrap();
    assert!((0..p).all(|of| vector[chunk(of)] == contribution(of, total)[chunk(of)]), "allgather by {algorithm:?}");
    let mut vector = contribution(rank, total);
    comm.reduce_scatter(&mut vector, Element::U32, &counts, Op::Sum, algorithm).unwrap();
    assert_eq!(vector[chunk(rank)], sum(p, total)[chunk(rank)], "reduce-scatter by {algorithm:?}");
    comm.barrier(algorithm).unwrap();
}

#[test]
fn two_level_algorithms_are_correct_for_any_nodes_and_order() {
    for topology in [scattered(), grid()] {
        world(topology, |comm| {
            assert_eq!(comm.choice(Collective::Allreduce, 8).unwrap().name, "two-level");
            for length in [0, 1, 1000, 100_000] {
                for algorithm in [None, Some("two-level@given"), Some("two-level@random:9")] {
                    check_all(comm, length, algorithm);
                }
            }
        });
    }
}

#[test]
fn every_algorithm_computes_the_sum_in_every_order() {
    let results = world(scattered(), |comm| {
        let names = Algorithm::of(Collective::Allreduce).map(|algorithm| algorithm.name);
        let orders = ["", "@racks", "@given", "@random:1", "@random:2"];
        let requested = names.flat_map(|name| orders.map(|order| format!("{name}{order}")));
        let reduced = requested.map(|requested| {
            let mut vector = contribution(comm.rank(), 500);
            comm.allreduce(&mut vector, Element::U32, Op::Sum, Some(&requested)).unwrap();
            vector
        });
        reduced.collect::<Vec<_>>()
    });
    assert!(results.iter().flatten().all(|result| *result == sum(9, 500)));
}

#[test]
fn a_different_order_is_a_mismatch_on_every_rank() {
    for (first_order, order) in [("chain@given", "chain@racks"), ("chain@random:1", "chain@random:2")] {
        let results = world(grid(), |comm| {
            let mut vector = contribution(0, 1000);
            let requested = if comm.rank() == 0 { first_order } else { order };
            let first = comm.broadcast(BufferMemory::Write(&mut vector), Element::U32, 0, Some(requested));
            first.and_then(|()| comm.barrier(None))
        });
        for result in results {
            let Err(Error::Failed(JobFailure::Mismatch { description })) = result else { panic!("{result:?}") };
            assert!(description.contains("order "), "{description}");
        }
    }
}

#[test]
fn overrides_apply_and_different_overrides_are_a_mismatch() {
    let run = |of_rank_0: &'static str, of_others: &'static str| {
        world(grid(), move |comm| {
            let text = if comm.rank() == 0 { of_rank_0 } else { of_others };
            comm.set_overrides(Overrides::parse(text).unwrap()).unwrap();
            let chosen = comm.choice(Collective::Barrier, 1).unwrap().name;
            comm.barrier(None).map(|()| chosen)
        })
    };
    assert!(run("dissemination", "barrier=dissemination").into_iter().all(|done| done == Ok("dissemination")));
    for result in run("", "dissemination") {
        let Err(Error::Failed(JobFailure::Mismatch { description })) = result else { panic!("{result:?}") };
        assert!(description.contains("two-level"), "{description}");
    }
}
