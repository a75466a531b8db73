//! The program of a rank: collectives of all kinds, each checked. After a failure it continues with the survivors.

use crate::calls::{from_bytes, to_bytes};
use crate::fabric::WorldRank;
use crate::faults::COMPUTING_US;
use crate::process::{ProcessActivity, ProgramEnding};
use crate::scheduler::WorldScheduler;
use ripieno::{Communicator, Element, Error, Op, Survivors};
use ripieno_run::JobFailure;
use std::sync::Arc;

/// Time that a departed rank waits for its monitor to end.
const MONITOR_END_TIMEOUT_US: u64 = 3_000_000;

/// A rank's program in one of its worlds.
pub struct RankProgram {
    pub scheduler: Arc<WorldScheduler>,
    pub first_rank: usize,
    pub comm: Communicator,
    /// The communicator of logical ranks, with replicas only.
    pub logical: Option<Communicator>,
    pub world: u64,
    /// The rank in the first world of each rank.
    pub first_ranks: Vec<usize>,
}

/// Run the program of process `first_rank` from its start to its end.
pub fn run(scheduler: &Arc<WorldScheduler>, first_rank: usize) -> ProgramEnding {
    let ending = match WorldRank::connect_first(scheduler, first_rank) {
        Ok(fabric) => run_steps(scheduler, first_rank, fabric),
        Err(error) => ProgramEnding::Failed(format!("did not connect: {error}")),
    };
    let is_withdrawn = {
        let mut world = scheduler.lock();
        world.processes[first_rank].activity = None;
        world.verdicts.faulty.insert(first_rank);
        world.count(match ending {
            ProgramEnding::Done => "ranks that finished",
            ProgramEnding::Raised => "ranks that raised an error",
            ProgramEnding::Differed(_) => "ranks with a mismatch",
            ProgramEnding::Failed(_) => "ranks that failed",
        });
        world.leave(first_rank, 0);
        world.random.chance(50)
    };
    scheduler.note_ending(first_rank, &ending);
    scheduler.wait_for(first_rank, MONITOR_END_TIMEOUT_US, |world| {
        world.processes[first_rank].monitors.get(&0).is_none_or(|monitor| monitor.is_over).then_some(())
    });
    let mut world = scheduler.lock();
    if world.processes[first_rank].is_alive() && (is_withdrawn || matches!(ending, ProgramEnding::Failed(_))) {
        world.end_process(first_rank);
    }
    drop(world);
    ending
}

fn run_steps(scheduler: &Arc<WorldScheduler>, first_rank: usize, fabric: WorldRank) -> ProgramEnding {
    let scenario = scheduler.scenario();
    let comm = Communicator::new(Box::new(fabric));
    let first_ranks = (0..comm.world_size()).collect();
    let mut participant =
        RankProgram { scheduler: scheduler.clone(), first_rank, comm, logical: None, world: 0, first_ranks };
    if scenario.replicas > 1 {
        participant.logical =
            Some(participant.comm.replicate(scenario.replicas).expect("it was started with replicas"));
    }
    let (mut step, mut is_agreed) = (0, true);
    loop {
        if scenario.raises == Some((first_rank, step)) {
            scheduler.lock().verdicts.faulty.insert(first_rank);
            participant.comm.abort("ValueError: on purpose", "");
            participant.comm.withdraw();
            return ProgramEnding::Raised;
        }
        participant.compute();
        participant.start_activity("a call", scenario.call_bound_us());
        let ended = match is_agreed {
            false => participant.agreed_step(step).map(|agreed| step = agreed),
            true if step == scenario.steps => match participant.calls().barrier(None) {
                Ok(()) => break,
                Err(error) => Err(error),
            },
            true if scenario.differs == Some((first_rank, step)) => {
                scheduler.lock().verdicts.faulty.insert(first_rank);
                participant.calls().allreduce(&mut [0; 56], Element::U8, Op::Max, None)
            }
            true => participant.call(step),
        };
        scheduler.lock().processes[first_rank].activity = None;
        match ended {
            Ok(()) if is_agreed => step += 1,
            Ok(()) => is_agreed = true,
            Err(Error::Failed(failure)) => {
                let mut world = scheduler.lock();
                world.verdicts.note(participant.world, &participant.first_ranks, first_rank, &failure);
                world.count(match failure {
                    JobFailure::RankFailed { .. } => "verdicts of a failed rank",
                    JobFailure::Mismatch { .. } => "verdicts of a mismatch",
                });
                drop(world);
                if let JobFailure::Mismatch { description } = failure {
                    return ProgramEnding::Differed(description);
                }
                if scenario.replicas > 1 {
                    return ProgramEnding::Failed(failure.to_string());
                }
                participant.start_activity("shrink()", scenario.shrink_bound_us());
                if let Err(error) = participant.shrink() {
                    participant.comm.withdraw();
                    return ProgramEnding::Failed(error.to_string());
                }
                scheduler.lock().count("shrunk worlds");
                is_agreed = false;
            }
            Err(error) => panic!("unexpected error: {error}"),
        }
    }
    participant.comm.withdraw();
    participant.logical = None;
    participant.comm.close();
    ProgramEnding::Done
}

impl RankProgram {
    fn start_activity(&self, name: &'static str, bound_us: u64) {
        let mut world = self.scheduler.lock();
        let since_us = world.now_us;
        world.processes[self.first_rank].activity = Some(ProcessActivity { name, since_us, bound_us });
    }

    /// Simulate the computation between two calls.
    fn compute(&self) {
        let for_us = self.scheduler.lock().random.below(COMPUTING_US);
        let _: Option<()> = self.scheduler.wait_for(self.first_rank, for_us, |_| None);
    }

    /// Return the communicator on which the program makes its calls.
    pub fn calls(&self) -> &Communicator {
        self.logical.as_ref().unwrap_or(&self.comm)
    }

    fn shrink(&mut self) -> Result<(), Error> {
        let Survivors { communicator, former_ranks, job, .. } = self.comm.shrink()?;
        self.first_ranks = former_ranks.iter().map(|&rank| self.first_ranks[rank]).collect();
        assert_eq!(self.first_ranks[communicator.rank()], self.first_rank, "the mapping contains this rank");
        let hosts = self.scheduler.scenario().hosts;
        let nodes: Vec<usize> = self.first_ranks.iter().map(|&rank| hosts[rank]).collect();
        let is_equal = |a: usize, b: usize| {
            let topology = communicator.topology();
            (topology.node(a) == topology.node(b)) == (nodes[a] == nodes[b])
        };
        let size = nodes.len();
        assert!((0..size).all(|a| (0..size).all(|b| is_equal(a, b))), "the topology is unchanged");
        self.world = job.trim_start_matches("world ").parse().expect("the job is named after a world");
        self.comm = communicator;
        Ok(())
    }

    /// Return the step at which all ranks resume: the minimum over all ranks. A rank that needs no data from others may
    /// be some calls ahead.
    fn agreed_step(&self, step: usize) -> Result<usize, Error> {
        let mut minimum = to_bytes(&[step as i64]);
        self.comm.allreduce(&mut minimum, Element::I64, Op::Min, None)?;
        Ok(from_bytes(&minimum)[0] as usize)
    }
}
