//! Shrinking: after any rank leaves, the survivors continue in a smaller world, over shared memory and TCP.

use crate::common::{bytes, endpoint_world, values};
use ripieno::net::LinkPolicy;
use ripieno::{BufferMemory, Communicator, Element, Error, Op, Survivors};

/// Shrink until all calls succeed. Return the survivors' ranks in the first world, and the results of the calls.
fn continue_with_survivors(comm: &mut Communicator, value: i64) -> (Vec<usize>, Vec<i64>) {
    let mut first: Vec<usize> = (0..comm.world_size()).collect();
    loop {
        match exchange(comm, value) {
            Ok(results) => return (first, results),
            Err(Error::Failed(_)) => {
                let Survivors { communicator, former_ranks, .. } = comm.shrink().unwrap();
                first = former_ranks.iter().map(|&rank| first[rank]).collect();
                assert!(matches!(exchange(comm, value), Err(Error::Closed)), "the former world is closed");
                *comm = communicator;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Return a sum, the broadcast value of the last rank, and the gathered values of all ranks.
fn exchange(comm: &Communicator, value: i64) -> Result<Vec<i64>, Error> {
    let p = comm.world_size();
    let (mut sum, mut last, mut all) = (bytes(&[value]), bytes(&[value]), bytes(&vec![0; p]));
    all[8 * comm.rank()..8 * comm.rank() + 8].copy_from_slice(&bytes(&[value]));
    comm.allreduce(&mut sum, Element::I64, Op::Sum, None)?;
    comm.broadcast(BufferMemory::Write(&mut last), Element::I64, p - 1, None)?;
    comm.allgather(&mut all, Element::I64, &vec![1; p], None)?;
    Ok([values(&sum), values(&last), values(&all)].concat())
}

/// Return the expected result of `exchange` for `ranks` if each contributes ten times its number.
fn expected(ranks: &[usize]) -> Vec<i64> {
    let value: Vec<i64> = ranks.iter().map(|&rank| 10 * rank as i64).collect();
    [vec![value.iter().sum(), *value.last().unwrap()], value].concat()
}

fn assert_survivors_continue(p: usize, victims: &[usize], links: LinkPolicy) {
    let survivors: Vec<usize> = (0..p).filter(|rank| !victims.contains(rank)).collect();
    let ended = endpoint_world(p, links, |comm| {
        let rank = comm.rank();
        // A rank may leave while others still communicate.
        let _ = exchange(comm, 0);
        if victims.contains(&rank) {
            comm.close();
            return None;
        }
        let topology = comm.topology();
        let (first, results) = continue_with_survivors(comm, 10 * rank as i64);
        assert_eq!(*comm.topology(), topology.of(&first), "hosts and racks are unchanged");
        Some((first, results))
    });
    for rank in &survivors {
        assert_eq!(
            ended[*rank],
            Some((survivors.clone(), expected(&survivors))),
            "rank {rank} of {p}, {victims:?} left"
        );
    }
}

#[test]
fn the_others_continue_after_any_rank_leaves() {
    for links in [LinkPolicy::SharedMemory, LinkPolicy::Tcp] {
        for p in 2..=6 {
            (0..p).for_each(|victim| assert_survivors_continue(p, &[victim], links));
        }
    }
}

#[test]
fn the_others_continue_after_any_two_ranks_leave() {
    for (p, links) in [(3, LinkPolicy::Tcp), (4, LinkPolicy::SharedMemory), (6, LinkPolicy::Tcp)] {
        for second in 1..p {
            (0..second).for_each(|first| assert_survivors_continue(p, &[first, second], links));
        }
    }
}

#[test]
fn the_others_continue_without_a_live_rank_whose_program_has_ended() {
    for (links, victim) in [(LinkPolicy::SharedMemory, 0), (LinkPolicy::Tcp, 1), (LinkPolicy::Auto, 2)] {
        let others: Vec<usize> = (0..3).filter(|&rank| rank != victim).collect();
        let continued = std::sync::Barrier::new(3);
        let ended = endpoint_world(3, links, |comm| {
            let rank = comm.rank();
            let _ = exchange(comm, 0);
            if rank == victim {
                comm.abort("its program has failed", "");
                comm.withdraw();
                continued.wait();
                assert!(matches!(comm.shrink(), Err(Error::Failed(_))), "a withdrawn rank cannot continue");
                return None;
            }
            let ended = continue_with_survivors(comm, 10 * rank as i64);
            // The rank with the ended program stays alive until here.
            continued.wait();
            Some(ended)
        });
        for &rank in &others {
            assert_eq!(ended[rank], Some((others.clone(), expected(&others))));
        }
    }
}

#[test]
fn worlds_shrink_repeatedly_down_to_one_rank() {
    let ended = endpoint_world(5, LinkPolicy::Auto, |comm| {
        let rank = comm.rank();
        let mut worlds = vec![];
        loop {
            let (first, _) = continue_with_survivors(comm, 0);
            worlds.push(first.len());
            // Each time the lowest rank leaves. It is the leader and the hub of all others.
            let is_last = comm.world_size() == 1;
            if comm.rank() == 0 {
                comm.close();
                assert!(is_last || rank < 4);
                return worlds;
            }
        }
    });
    assert_eq!(ended[4], [5, 4, 3, 2, 1]);
}

#[test]
fn a_world_without_a_failure_does_not_shrink() {
    endpoint_world(2, LinkPolicy::Auto, |comm| {
        assert!(matches!(comm.shrink(), Err(Error::NothingFailed)));
        exchange(comm, 1).unwrap();
    });
}

#[test]
fn all_ranks_continue_after_a_mismatch() {
    let ended = endpoint_world(3, LinkPolicy::Auto, |comm| {
        let value = comm.rank() as i64;
        let called = if value == 1 { comm.barrier(None) } else { exchange(comm, value).map(drop) };
        assert!(matches!(called, Err(Error::Failed(_))));
        continue_with_survivors(comm, 10 * value)
    });
    assert_eq!(ended, vec![(vec![0, 1, 2], expected(&[0, 1, 2])); 3]);
}
