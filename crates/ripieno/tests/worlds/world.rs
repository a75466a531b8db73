//! The state of a simulated world, and the effects of its events.

use crate::connections::{Direction, Opening, Payload, SimulatedConnection};
use crate::faults::{END_US, FAULTS_END_US, HEARTBEAT, Scenario, WorldFault};
use crate::process::{Process, ProcessState};
use crate::random::WorldRandom;
use crate::verdicts::Verdicts;
use ripieno_run::membership::{MembershipEvent, agreement};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorldEvent {
    /// The oldest payload in this direction arrives.
    Arrival(Direction),
    /// A connection is opened or refused. The fields are the direction from the requesting rank, the requested address,
    /// and the time of the request.
    Opening(Direction, u64, u64),
    Wake {
        rank: usize,
        sleep_number: u64,
    },
    Tick {
        rank: usize,
        world: u64,
    },
    Beat {
        rank: usize,
    },
    Fault(WorldFault),
    Resume {
        rank: usize,
    },
    Repair {
        from: usize,
        to: usize,
    },
}

pub struct SimulatedWorld {
    pub scenario: Scenario,
    pub random: WorldRandom,
    pub now_us: u64,
    pub order: u64,
    timeline: BinaryHeap<Reverse<(u64, u64, WorldEvent)>>,
    /// The rank with the running thread; `None` after the end of the run.
    pub turn: Option<usize>,
    pub is_over: bool,
    pub failure_text: Option<String>,
    pub processes: Vec<Process>,
    /// Whether the thread of each rank has ended.
    pub ended: Vec<bool>,
    pub connections: BTreeMap<Direction, SimulatedConnection>,
    pub openings: BTreeMap<Direction, Opening>,
    /// For each pair of hosts, from and to: the number of active cuts, and the time of the first.
    pub cuts: BTreeMap<(usize, usize), (u32, u64)>,
    pub listeners: BTreeMap<usize, Vec<u64>>,
    pub verdicts: Verdicts,
    pub counts: BTreeMap<&'static str, u64>,
}

impl SimulatedWorld {
    pub fn new(seed: u64) -> SimulatedWorld {
        let scenario = Scenario::random(seed);
        let processes: Vec<Process> =
            (0..scenario.hosts.len()).map(|rank| Process::new(rank, &scenario.hosts, scenario.clocks[rank])).collect();
        let size = processes.len();
        let mut world = SimulatedWorld {
            random: WorldRandom(seed ^ 0x5eed),
            now_us: 0,
            order: 0,
            timeline: BinaryHeap::new(),
            turn: None,
            is_over: false,
            failure_text: None,
            processes,
            ended: vec![false; size],
            connections: BTreeMap::new(),
            openings: BTreeMap::new(),
            cuts: BTreeMap::new(),
            listeners: (0..size).map(|rank| (rank, vec![0])).collect(),
            verdicts: Verdicts::default(),
            counts: BTreeMap::new(),
            scenario,
        };
        for (at_us, fault) in world.scenario.faults.clone() {
            world.plan(at_us, WorldEvent::Fault(fault));
        }
        for rank in 0..size {
            world.sleep(rank, world.scenario.starts_us[rank]);
        }
        world
    }

    pub fn count(&mut self, event: &'static str) {
        *self.counts.entry(event).or_default() += 1;
    }

    /// Add an event to the timeline.
    pub fn plan(&mut self, at_us: u64, planned: WorldEvent) {
        self.order += 1;
        self.timeline.push(Reverse((at_us.max(self.now_us), self.order, planned)));
    }

    /// Process events until one of them wakes a rank; return that rank. Return `None` if all threads have ended.
    pub fn advance(&mut self) -> Option<usize> {
        while let Some(Reverse((at_us, _, planned))) = self.timeline.pop() {
            if at_us > END_US || self.ended.iter().all(|&has_ended| has_ended) {
                break;
            }
            self.now_us = at_us;
            let woken = self.apply(planned);
            self.check_bounds();
            if woken.is_some() {
                return woken;
            }
        }
        None
    }

    fn apply(&mut self, planned: WorldEvent) -> Option<usize> {
        match planned {
            WorldEvent::Arrival(direction) => self.arrive(direction),
            WorldEvent::Opening(direction, address, since_us) => self.try_open(direction, address, since_us),
            WorldEvent::Wake { rank, sleep_number } => {
                let process = &self.processes[rank];
                return (process.sleep_number == sleep_number && process.runs() && !self.ended[rank]).then_some(rank);
            }
            WorldEvent::Tick { rank, world } => self.tick(rank, world),
            WorldEvent::Beat { rank } => {
                let process = &self.processes[rank];
                if process.runs() && process.local(self.now_us) >= process.agreement.next_tick() {
                    self.agree(rank, agreement::AgreementEvent::Tick);
                }
            }
            WorldEvent::Fault(fault) => return self.inject_fault(fault),
            WorldEvent::Resume { rank } => self.resume(rank),
            WorldEvent::Repair { from, to } => {
                if let Some((count, _)) = self.cuts.get_mut(&(from, to)) {
                    *count -= 1;
                }
            }
        }
        None
    }

    fn inject_fault(&mut self, fault: WorldFault) -> Option<usize> {
        match fault {
            WorldFault::Kill { rank } => {
                let continues =
                    |other: usize| self.processes[other].is_alive() && self.processes[other].ending.is_none();
                let is_spared = (0..self.processes.len()).any(|other| other != rank && continues(other));
                if !is_spared || !self.processes[rank].is_alive() {
                    return None;
                }
                self.count("ranks killed");
                self.end_process(rank);
                self.verdicts.faulty.insert(rank);
                self.verdicts.killed.insert(rank);
                return (!self.ended[rank]).then_some(rank);
            }
            WorldFault::Stop { rank, for_us } => {
                if self.processes[rank].runs() {
                    self.count("ranks stopped");
                    self.verdicts.faulty.insert(rank);
                    self.processes[rank].process_state = ProcessState::Stopped { since_us: self.now_us };
                    let until = (self.now_us + for_us).min(FAULTS_END_US + 2_000_000);
                    self.plan(until, WorldEvent::Resume { rank });
                }
            }
            WorldFault::Cut { from, to, for_us } => {
                self.count("cuts between hosts");
                let cut = self.cuts.entry((from, to)).or_insert((0, 0));
                if cut.0 == 0 {
                    cut.1 = self.now_us;
                }
                cut.0 += 1;
                self.verdicts
                    .faulty
                    .extend((0..self.processes.len()).filter(|&rank| [from, to].contains(&self.processes[rank].host)));
                let until = (self.now_us + for_us).min(FAULTS_END_US).max(self.now_us + 1);
                self.plan(until, WorldEvent::Repair { from, to });
            }
        }
        None
    }

    /// End the process; its operating system closes its connections.
    pub fn end_process(&mut self, rank: usize) {
        self.processes[rank].process_state = ProcessState::Over;
        let directions: Vec<Direction> =
            self.connections.keys().copied().filter(|direction| direction.from == rank).collect();
        directions.into_iter().for_each(|direction| self.send_payload(direction, Payload::End));
    }

    fn resume(&mut self, rank: usize) {
        let ProcessState::Stopped { since_us } = self.processes[rank].process_state else { return };
        let gap_us = self.now_us - since_us;
        let process = &mut self.processes[rank];
        process.process_state = ProcessState::Runs;
        if let Some(activity) = &mut process.activity {
            activity.since_us += gap_us;
        }
        if gap_us > HEARTBEAT.as_micros() as u64 / 2 {
            process.was_paused = true;
            self.agree(rank, agreement::AgreementEvent::Suspended);
        }
        self.deliver_held(rank);
        let worlds: Vec<u64> = self.processes[rank].monitors.keys().copied().collect();
        worlds.into_iter().for_each(|world| self.event(rank, world, MembershipEvent::Tick));
        self.agree(rank, agreement::AgreementEvent::Tick);
        // Events during the stop did not wake the process.
        self.processes[rank].has_events = false;
        self.wake(rank);
    }

    /// Deliver the payloads that arrived while the process did not accept them.
    pub fn deliver_held(&mut self, rank: usize) {
        for (direction, payload) in std::mem::take(&mut self.processes[rank].held) {
            self.deliver(direction, payload);
        }
    }

    /// Put a rank to sleep, at most until the given time.
    pub fn sleep(&mut self, rank: usize, until_us: u64) {
        self.processes[rank].sleep_number += 1;
        let sleep_number = self.processes[rank].sleep_number;
        self.plan(until_us.max(self.now_us + 1), WorldEvent::Wake { rank, sleep_number });
    }

    /// Wake a sleeping rank after an event that it may wait for.
    pub fn wake(&mut self, rank: usize) {
        let process = &mut self.processes[rank];
        if !process.has_events && process.runs() {
            let sleep_number = process.sleep_number;
            self.plan(self.now_us + 1, WorldEvent::Wake { rank, sleep_number });
        }
        self.processes[rank].has_events = true;
    }

    fn check_bounds(&self) {
        for (rank, process) in self.processes.iter().enumerate().filter(|(_, process)| process.runs()) {
            let Some(activity) = process.activity else { continue };
            let waited_us = self.now_us.saturating_sub(activity.since_us);
            assert!(
                waited_us <= activity.bound_us,
                "rank {rank} has waited for {:.1} s in {}: expected at most {:.1} s",
                waited_us as f64 / 1e6,
                activity.name,
                activity.bound_us as f64 / 1e6
            );
        }
    }
}
