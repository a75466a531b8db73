//! The program of a rank: collectives of all kinds, each checked. After a failure it continues with the survivors.

use crate::calls::{numbers, words};
use crate::fabric::WorldRank;
use crate::faults::COMPUTING_US;
use crate::process::{ProcessActivity, ProgramEnding};
use crate::world_state::WorldStage;
use ripieno::{Communicator, Element, Error, Op, Survivors};
use ripieno_run::JobFailure;
use std::sync::Arc;

/// How long a departed rank waits for its monitor.
const GOODBYE_TIMEOUT_US: u64 = 3_000_000;

/// A rank's program in one of its worlds.
pub struct RankProgram {
    pub world_state: Arc<WorldStage>,
    pub own: usize,
    pub comm: Communicator,
    /// The communicator of logical ranks, with replicas only.
    pub logical: Option<Communicator>,
    pub world: u64,
    /// The number of each rank in the first world.
    pub first: Vec<usize>,
}

/// Run the program of rank `own` from its start to its end.
pub fn live(world_state: &Arc<WorldStage>, own: usize) -> ProgramEnding {
    let ending = match WorldRank::connect_first(world_state, own) {
        Ok(fabric) => play(world_state, own, fabric),
        Err(error) => ProgramEnding::Failed(format!("did not meet: {error}")),
    };
    let is_withdrawn = {
        let mut world = world_state.lock();
        world.processes[own].doing = None;
        world.verdicts.faulty.insert(own);
        world.count(match ending {
            ProgramEnding::Done => "ranks that finished",
            ProgramEnding::Raised => "that raised",
            ProgramEnding::Differed(_) => "told of a difference",
            ProgramEnding::Failed(_) => "told why they did not finish",
        });
        world.leave(own, 0);
        world.dice.chance(50)
    };
    world_state.note_ending(own, &ending);
    world_state.wait_for(own, GOODBYE_TIMEOUT_US, |world| {
        world.processes[own].monitors.get(&0).is_none_or(|monitor| monitor.is_over).then_some(())
    });
    let mut world = world_state.lock();
    if world.processes[own].is_alive() && (is_withdrawn || matches!(ending, ProgramEnding::Failed(_))) {
        world.end_process(own);
    }
    drop(world);
    ending
}

fn play(world_state: &Arc<WorldStage>, own: usize, fabric: WorldRank) -> ProgramEnding {
    let scenario = world_state.scenario();
    let comm = Communicator::new(Box::new(fabric));
    let first = (0..comm.world_size()).collect();
    let mut participant = RankProgram { world_state: world_state.clone(), own, comm, logical: None, world: 0, first };
    if scenario.replicas > 1 {
        participant.logical =
            Some(participant.comm.replicate(scenario.replicas).expect("it was started with replicas"));
    }
    let (mut step, mut is_agreed) = (0, true);
    loop {
        if scenario.raises == Some((own, step)) {
            world_state.lock().verdicts.faulty.insert(own);
            participant.comm.abort("here", "ValueError: on purpose", "");
            participant.comm.withdraw();
            return ProgramEnding::Raised;
        }
        participant.compute();
        participant.doing("a call", scenario.call_bound_us());
        let ended = match is_agreed {
            false => participant.agreed_step(step).map(|agreed| step = agreed),
            true if step == scenario.steps => match participant.calls().barrier(None) {
                Ok(()) => break,
                Err(error) => Err(error),
            },
            true if scenario.differs == Some((own, step)) => {
                world_state.lock().verdicts.faulty.insert(own);
                participant.calls().allreduce(&mut [0; 56], Element::U8, Op::Max, None)
            }
            true => participant.call(step),
        };
        world_state.lock().processes[own].doing = None;
        match ended {
            Ok(()) if is_agreed => step += 1,
            Ok(()) => is_agreed = true,
            Err(Error::Failed(failure)) => {
                world_state.lock().verdicts.note(participant.world, &participant.first, own, &failure);
                if let JobFailure::Mismatch { description } = failure {
                    return ProgramEnding::Differed(description);
                }
                if scenario.replicas > 1 {
                    return ProgramEnding::Failed(failure.to_string());
                }
                participant.doing("shrink()", scenario.shrink_bound_us());
                if let Err(error) = participant.shrink() {
                    participant.comm.withdraw();
                    return ProgramEnding::Failed(error.to_string());
                }
                world_state.lock().count("returns in a smaller world");
                is_agreed = false;
            }
            Err(error) => panic!("a call has failed of {error}"),
        }
    }
    participant.comm.withdraw();
    participant.logical = None;
    participant.comm.close();
    ProgramEnding::Done
}

impl RankProgram {
    fn doing(&self, what: &'static str, bound_us: u64) {
        let mut world = self.world_state.lock();
        let since_us = world.now_us;
        world.processes[self.own].doing = Some(ProcessActivity { what, since_us, bound_us });
    }

    /// Simulate the computation between two calls.
    fn compute(&self) {
        let for_us = self.world_state.lock().dice.below(COMPUTING_US);
        let _: Option<()> = self.world_state.wait_for(self.own, for_us, |_| None);
    }

    pub fn calls(&self) -> &Communicator {
        self.logical.as_ref().unwrap_or(&self.comm)
    }

    fn shrink(&mut self) -> Result<(), Error> {
        let Survivors { communicator, former_ranks, job, .. } = self.comm.shrink()?;
        self.first = former_ranks.iter().map(|&rank| self.first[rank]).collect();
        assert_eq!(self.first[communicator.rank()], self.own, "a rank knows its place");
        let hosts = self.world_state.scenario().hosts;
        let nodes: Vec<usize> = self.first.iter().map(|&rank| hosts[rank]).collect();
        let is_kept = |a: usize, b: usize| {
            let topology = communicator.topology();
            (topology.node(a) == topology.node(b)) == (nodes[a] == nodes[b])
        };
        let size = nodes.len();
        assert!((0..size).all(|a| (0..size).all(|b| is_kept(a, b))), "the topology is kept");
        self.world = job.trim_start_matches("world ").parse().expect("worlds have numbers");
        self.comm = communicator;
        Ok(())
    }

    /// Return the step at which all ranks resume, the least of all. A rank that needs no data from others may be some
    /// calls ahead.
    fn agreed_step(&self, own: usize) -> Result<usize, Error> {
        let mut least = words(&[own as i64]);
        self.comm.allreduce(&mut least, Element::I64, Op::Min, None)?;
        Ok(numbers(&least)[0] as usize)
    }
}
