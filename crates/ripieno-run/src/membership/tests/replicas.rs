//! Worlds with replicas: the job continues exactly as long as a replica of each rank is alive, for any order of deaths.

use super::*;

/// Return every ordered selection of `count` ranks below `world_size`.
fn orders(world_size: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![vec![]];
    }
    let shorter = orders(world_size, count - 1);
    let longer = |order: &Vec<usize>| {
        let others = (0..world_size).filter(|rank| !order.contains(rank));
        others.map(|rank| [&order[..], &[rank]].concat()).collect::<Vec<_>>()
    };
    shorter.iter().flat_map(longer).collect()
}

/// Let the ranks die in this order until a last replica has died. Check the reports to the other ranks after each
/// death.
fn die_in_order(world: &mut MembershipWorld, order: &[usize], kill: impl Fn(&mut MembershipWorld, usize)) {
    let mut dead = Vec::new();
    for &rank in order {
        kill(world, rank);
        dead.push(rank);
        let is_last = world.replicas.of(rank).all(|replica| dead.contains(&replica));
        for survivor in world.survivors() {
            let Some(JobFailure::RankFailed { rank: failed_rank, cause, .. }) = &world.failures[survivor] else {
                assert!(!is_last, "rank {survivor} was not notified of the last replica, {rank}, in {order:?}");
                let mut reported = world.losses[survivor].clone();
                let mut known = dead.clone();
                reported.sort_unstable();
                known.sort_unstable();
                assert_eq!(reported, known, "to rank {survivor} in {order:?}");
                continue;
            };
            assert!(is_last && *failed_rank == rank, "{order:?}: rank {survivor} names {failed_rank}: {cause}");
            assert!(cause.contains("before that its replica, rank "), "{cause}");
        }
        if is_last {
            return;
        }
    }
}

#[test]
fn the_job_ends_with_the_last_replica_in_any_order_of_deaths() {
    for (world_size, replicas) in [(4, 2), (3, 3), (6, 3), (2, 2)] {
        for order in orders(world_size, world_size.min(4)) {
            let mut world = MembershipWorld::replicated(world_size, replicas);
            assert_eq!(world.completed, vec![true; world_size]);
            die_in_order(&mut world, &order, MembershipWorld::kill);
        }
    }
}

#[test]
fn silent_ranks_are_detected_within_five_quarters_of_the_timeout_in_any_order() {
    for order in orders(4, 3) {
        let mut world = MembershipWorld::replicated(4, 2);
        die_in_order(&mut world, &order, |world, rank| {
            world.frozen.push(rank);
            world.pass(Duration::from_millis(1200));
        });
    }
}

#[test]
fn a_replicated_world_without_deaths_stays_healthy_and_leaves_in_any_order() {
    for order in orders(4, 4) {
        let mut world = MembershipWorld::replicated(4, 2);
        world.pass(Duration::from_secs(30));
        order.iter().for_each(|&rank| world.request(rank, MembershipRequest::Leave));
        assert_eq!(world.finished, [true; 4], "{order:?}");
        assert!(world.failures.iter().all(Option::is_none) && world.losses.iter().all(Vec::is_empty));
    }
}

#[test]
fn a_reported_error_reaches_all_ranks_despite_live_replicas_and_dead_hubs() {
    for dead in [vec![], vec![0], vec![2]] {
        let mut world = MembershipWorld::replicated(4, 2);
        dead.iter().for_each(|&rank| world.kill(rank));
        world.request(1, MembershipRequest::Report(raised(1)));
        assert!(world.survivors().iter().all(|&rank| world.failures[rank] == Some(raised(1))), "{dead:?}");
    }
}

#[test]
fn a_report_lost_with_the_first_hub_is_sent_by_the_next() {
    let mut world = MembershipWorld::replicated(4, 2);
    world.event(3, MembershipEvent::Request(MembershipRequest::Report(raised(3))));
    // Rank 0 dies before the report arrives.
    world.frozen.push(0);
    world.deliver();
    assert_eq!(world.failures[1], None);
    world.kill(0);
    assert!([1, 2, 3].iter().all(|&rank| world.failures[rank] == Some(raised(3))));
}

#[test]
fn a_death_before_all_have_joined_ends_the_job() {
    let mut world = MembershipWorld::with_replicas(4, 2);
    [0, 1, 3].iter().for_each(|&peer| world.event(2, MembershipEvent::Connected { peer }));
    [1, 2].iter().for_each(|&peer| world.event(0, MembershipEvent::Connected { peer }));
    world.deliver();
    world.kill(1);
    assert!([0, 2].iter().all(|&rank| matches!(world.failures[rank], Some(JobFailure::RankFailed { rank: 1, .. }))));
}

#[test]
fn a_hub_that_is_lost_before_all_have_joined_is_reported_afterwards() {
    let mut world = MembershipWorld::with_replicas(4, 2);
    world.event(3, MembershipEvent::Closed { peer: 0, cause: "its process ended".into() });
    assert!(world.losses[3].is_empty() && world.failures[3].is_none());
    world.event(3, MembershipEvent::Received { peer: 2, message: MembershipMessage::Complete });
    assert!(world.completed[3]);
    assert_eq!(world.losses[3], [0]);
}

#[test]
fn a_loss_reported_by_one_hub_is_forwarded_to_the_other() {
    for (hub, other, witness, lost) in [(2, 0, 3, 1), (0, 2, 1, 3)] {
        let mut world = MembershipWorld::replicated(4, 2);
        let message = MembershipMessage::Lost(rank_failed(lost, &[], "no heartbeat for 1.2 s"));
        world.event(witness, MembershipEvent::Received { peer: hub, message });
        world.deliver();
        assert_eq!((&world.losses[witness], &world.losses[other]), (&vec![lost], &vec![lost]), "from hub {hub}");
    }
}

#[test]
fn a_hub_that_has_not_admitted_all_ranks_trusts_the_first_hub() {
    for sees_the_death_first in [false, true] {
        let mut world = MembershipWorld::with_replicas(4, 2);
        // Rank 3 is still connecting to hub 2.
        [0, 1].iter().for_each(|&peer| world.event(2, MembershipEvent::Connected { peer }));
        [1, 2, 3].iter().for_each(|&peer| world.event(0, MembershipEvent::Connected { peer }));
        if sees_the_death_first {
            world.event(2, MembershipEvent::Closed { peer: 1, cause: "its process ended".into() });
        }
        world.deliver();
        assert_eq!(world.completed, [true; 4]);
        world.kill(1);
        world.event(2, MembershipEvent::Connected { peer: 3 });
        world.deliver();
        world.kill(0);
        assert!([2, 3].iter().all(|&rank| world.failures[rank].is_none() && world.losses[rank] == [1, 0]));
        world.kill(3);
        assert!(matches!(world.failures[2], Some(JobFailure::RankFailed { rank: 3, .. })));
    }
}

#[test]
fn a_rank_presumed_dead_is_notified_when_it_returns() {
    for silent in 0..4 {
        let mut world = MembershipWorld::replicated(4, 2);
        world.frozen.push(silent);
        world.pass(Duration::from_millis(1200));
        world.frozen.clear();
        // Messages that waited on the connections of the silent rank.
        let message = MembershipMessage::Failed(rank_failed(silent, &[], "no heartbeat for 1.2 s"));
        let peer = if silent == 0 { 2 } else { 0 };
        world.event(silent, MembershipEvent::Received { peer, message });
        world.deliver();
        assert!(world.failures[silent].is_some());
        world.request(silent, MembershipRequest::Report(raised(silent)));
        assert!((0..4).filter(|&rank| rank != silent).all(|rank| world.failures[rank].is_none()), "{silent}");
    }
}

#[test]
fn a_replica_that_left_is_not_needed_while_another_runs() {
    let mut world = MembershipWorld::replicated(4, 2);
    world.request(1, MembershipRequest::Leave);
    world.request(2, MembershipRequest::Suspect { peer: 1, cause: "closed".into() });
    world.pass(hub::GRACE);
    assert!(world.failures.iter().all(Option::is_none));
    world.frozen.push(1);
    world.kill(3);
    assert!(world.failures.iter().all(Option::is_none), "rank 1 has finished its part");
    world.request(2, MembershipRequest::Suspect { peer: 1, cause: "closed".into() });
    world.assert_all_report(1, "left the job while rank 2 still needed it");
}

#[test]
fn the_next_hub_learns_the_losses_that_a_separated_hub_declared() {
    let mut world = MembershipWorld::replicated(6, 2);
    // Rank 4 is connected to both hubs, which are not connected to each other.
    world.frozen.push(0);
    let message = MembershipMessage::Lost(rank_failed(2, &[], "no heartbeat for 1.2 s"));
    world.event(4, MembershipEvent::Received { peer: 0, message });
    world.deliver();
    world.kill(0);
    assert!(
        matches!(world.failures[2], Some(JobFailure::RankFailed { rank: 2, .. })),
        "rank 2 must not wait for rank 4"
    );
    for rank in [1, 3, 4, 5] {
        world.losses[rank].sort_unstable();
        assert_eq!((&world.failures[rank], &world.losses[rank][..]), (&None, &[0, 2][..]), "rank {rank}");
    }
}

#[test]
fn the_death_of_a_hub_before_a_rank_knows_that_all_have_joined_is_tolerated() {
    for (dead, delivered) in [(2, vec![0, 1, 2, 3]), (0, vec![3]), (0, vec![])] {
        let mut world = MembershipWorld::with_replicas(4, 2);
        [0, 1, 3].iter().for_each(|&peer| world.event(2, MembershipEvent::Connected { peer }));
        [1, 2, 3].iter().for_each(|&peer| world.event(0, MembershipEvent::Connected { peer }));
        // Some messages of hub 0 are still on their way when the hub dies. If it is hub 0, the others are lost with it.
        world.wire.retain(|(_, to, _)| delivered.contains(to));
        world.kill(dead);
        for rank in world.survivors() {
            assert!(world.completed[rank], "rank {rank} must know that all have joined, {dead} {delivered:?}");
            assert_eq!((&world.failures[rank], &world.losses[rank][..]), (&None, &[dead][..]), "rank {rank}");
        }
    }
}
