//! Checks of the results of all ranks at the end of a run.

use crate::process::ProgramEnding;
use crate::world::SimulatedWorld;

/// Check that each surviving rank has finished or received a reason.
pub fn check_end(world: &mut SimulatedWorld) {
    let is_one_node = world.scenario.host_count() == 1;
    // On a single node, ranks may continue without a majority, and a rank that was stopped may continue separately.
    let is_exempt = |rank: usize| is_one_node && world.processes[rank].was_paused;
    world.verdicts.check_decisions(is_exempt);
    let divided = world.verdicts.divided.len() as u64;
    if divided > 0 {
        *world.counts.entry("worlds with different failures on their ranks").or_default() += divided;
    }
    let killed = &world.verdicts.killed;
    for (rank, process) in world.processes.iter().enumerate().filter(|(rank, _)| !killed.contains(rank)) {
        let ending = process.ending.as_ref();
        let ending = ending.unwrap_or_else(|| panic!("rank {rank} has not ended: {:?}", process.activity));
        let has_connected = process.monitors.get(&0).is_some_and(|monitor| monitor.is_complete);
        if let ProgramEnding::Failed(reason) = ending {
            let is_spared = world.scenario.replicas == 1 || all_ranks_alive(world);
            let must_finish =
                world.scenario.has_only_kills() && has_connected && is_spared && !reason.contains("did not connect");
            assert!(!must_finish, "rank {rank} did not finish, although all faults were kills: {reason}");
        }
        if let Some((differing_rank, _)) = world.scenario.differs {
            // A replica of the differing rank may succeed with the data of the other replicas.
            let must_receive = world.scenario.replicas == 1 || rank == differing_rank;
            let has_received = matches!(ending, ProgramEnding::Differed(_));
            assert!(has_received || !must_receive, "rank {rank} got no mismatch: {ending:?}");
        } else {
            assert!(
                !matches!(ending, ProgramEnding::Differed(_)),
                "rank {rank} got a mismatch without a cause: {ending:?}"
            );
        }
    }
}

/// Return whether each logical rank has a live replica.
fn all_ranks_alive(world: &SimulatedWorld) -> bool {
    let count = world.processes.len() / world.scenario.replicas;
    (0..count)
        .all(|rank| (rank..world.processes.len()).step_by(count).any(|copy| !world.verdicts.killed.contains(&copy)))
}
