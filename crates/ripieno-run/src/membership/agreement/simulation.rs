//! Simulation of survivor agreements on a virtual clock. Ranks are killed, stopped and resumed, and their programs end.
//! Messages are delayed, links are cut in one or both directions, and hosts are partitioned. Each seed is one run. The
//! guarantees are checked whenever a rank learns a decision, and at the end of the run.
//!
//! `RIPIENO_SEED=n` runs that seed alone. `RIPIENO_SEEDS=n` runs that many seeds.

use super::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

const SILENCE_MS: u64 = 1000;
const LATE_MS: u64 = 3000;
const TIMEOUTS: AgreementTimeouts =
    AgreementTimeouts { silence: Duration::from_millis(SILENCE_MS), late: Duration::from_millis(LATE_MS) };
/// Faults occur until this time. Afterwards all links heal and stopped ranks resume.
const FAULTS_END_MS: u64 = 12_000;
const END_MS: u64 = 60_000;

/// Deterministic pseudorandom numbers (splitmix64).
struct SimulationRandom(u64);

impl SimulationRandom {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A scheduled event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    /// The oldest message or end-of-stream between the two ranks arrives.
    Arrival {
        from: usize,
        to: usize,
    },
    /// The connection that `from` requested is established or refused.
    Opening {
        from: usize,
        to: usize,
    },
    Wake {
        rank: usize,
    },
    /// A rank checks whether its world is still complete.
    Poll {
        rank: usize,
    },
    Begin {
        rank: usize,
    },
    Kill {
        rank: usize,
    },
    /// The program of a rank ends or fails. The rank takes no further part.
    Withdraw {
        rank: usize,
    },
    Stop {
        rank: usize,
        for_ms: u64,
    },
    Resume {
        rank: usize,
    },
    Cut {
        from: usize,
        to: usize,
        for_ms: u64,
    },
    Heal {
        from: usize,
        to: usize,
    },
}

/// The payload of a connection.
#[derive(Clone, Debug)]
enum ConnectionPayload {
    Message(AgreementMessage),
    End,
}

#[derive(Clone, Debug, PartialEq)]
enum RankActivity {
    /// Working with these ranks.
    Work(Vec<usize>),
    Agree,
    /// The program of the rank is over.
    Withdrawn,
    /// The rank was excluded or gave up, and has closed.
    Closed,
}

struct SimulatedRank {
    machine: Agreement,
    is_alive: bool,
    activity: RankActivity,
    begun_ms: u64,
    /// Time at which the rank was stopped.
    stopped_ms: Option<u64>,
    /// Events that arrived while the rank was stopped.
    inbox: VecDeque<AgreementEvent>,
    /// Decisions that the rank learned, by epoch.
    decisions: BTreeMap<u32, Vec<usize>>,
    was_ever_paused: bool,
    gave_up: bool,
    /// The rank is about to begin an agreement.
    is_leaving: bool,
}

struct AgreementWorld {
    seed: u64,
    random: SimulationRandom,
    now_ms: u64,
    order: u64,
    timeline: BinaryHeap<Reverse<(u64, u64, SimulatedEvent)>>,
    participants: Vec<SimulatedRank>,
    hosts: Vec<usize>,
    /// Established connections; both directions are present.
    open: BTreeSet<(usize, usize)>,
    opening: BTreeSet<(usize, usize)>,
    /// Payloads in transit between two ranks.
    in_transit: BTreeMap<(usize, usize), VecDeque<(u64, ConnectionPayload)>>,
    /// Number of active cuts from one host to another.
    cuts: BTreeMap<(usize, usize), u32>,
    faults: SeededFaults,
}

/// The kinds of faults that a seed enables.
#[derive(Clone, Copy, Debug)]
struct SeededFaults {
    has_stops: bool,
    has_cuts: bool,
    has_late: bool,
    delay_ms: u64,
}

impl SeededFaults {
    /// Return whether every fault is reported immediately.
    fn are_reported_at_once(&self) -> bool {
        !self.has_stops && !self.has_cuts && !self.has_late
    }
}

impl AgreementWorld {
    fn new(seed: u64) -> AgreementWorld {
        let mut random = SimulationRandom(seed);
        let size = 2 + random.below(6) as usize;
        let is_one_node = random.chance(35);
        let per_host = if is_one_node { size } else { 1 + random.below(2) as usize };
        let hosts: Vec<usize> = (0..size).map(|rank| rank / per_host).collect();
        let is_one_node = hosts.iter().all(|&host| host == 0);
        let faults = SeededFaults {
            has_stops: random.chance(50),
            has_cuts: !is_one_node && random.chance(50),
            has_late: random.chance(25),
            delay_ms: 1 + random.below(if is_one_node { 5 } else { 120 }),
        };
        let machine = |rank| Agreement::new(rank, size, is_one_node, TIMEOUTS);
        let participant = |rank| SimulatedRank {
            machine: machine(rank),
            is_alive: true,
            activity: RankActivity::Work((0..size).collect()),
            begun_ms: 0,
            stopped_ms: None,
            inbox: VecDeque::new(),
            decisions: BTreeMap::new(),
            was_ever_paused: false,
            gave_up: false,
            is_leaving: false,
        };
        let mut world = AgreementWorld {
            seed,
            random,
            now_ms: 0,
            order: 0,
            timeline: BinaryHeap::new(),
            participants: (0..size).map(participant).collect(),
            hosts,
            open: BTreeSet::new(),
            opening: BTreeSet::new(),
            in_transit: BTreeMap::new(),
            cuts: BTreeMap::new(),
            faults,
        };
        world.plan_faults();
        world
    }

    fn plan_faults(&mut self) {
        let size = self.participants.len() as u64;
        (0..self.participants.len()).for_each(|rank| self.plan(1 + rank as u64, SimulatedEvent::Poll { rank }));
        let host_count = 1 + self.hosts.iter().max().copied().unwrap_or(0) as u64;
        for _ in 0..1 + self.random.below(4) {
            // Many faults occur at about the same time, during an agreement.
            let at =
                if self.random.chance(60) { 500 + self.random.below(600) } else { self.random.below(FAULTS_END_MS) };
            let rank = self.random.below(size) as usize;
            let planned = match self.random.below(5) {
                0 | 1 => SimulatedEvent::Kill { rank },
                4 => SimulatedEvent::Withdraw { rank },
                2 if self.faults.has_stops => {
                    let for_ms = if self.random.chance(50) {
                        100 + self.random.below(400)
                    } else {
                        2000 + self.random.below(9000)
                    };
                    SimulatedEvent::Stop { rank, for_ms }
                }
                3 if self.faults.has_cuts => {
                    let (from, to) = (self.random.below(host_count) as usize, self.random.below(host_count) as usize);
                    let for_ms = 200 + self.random.below(9000);
                    if self.random.chance(60) {
                        self.plan(at, SimulatedEvent::Cut { from: to, to: from, for_ms });
                    }
                    SimulatedEvent::Cut { from, to, for_ms }
                }
                _ => SimulatedEvent::Kill { rank },
            };
            self.plan(at, planned);
            if self.faults.has_cuts && self.random.chance(30) {
                self.partition(at, host_count);
            }
        }
    }

    /// Partition the hosts into two sets without any communication between them.
    fn partition(&mut self, at: u64, host_count: u64) {
        let edge = 1 + self.random.below(host_count) as usize;
        let for_ms = 500 + self.random.below(11_000);
        for from in 0..host_count as usize {
            for to in (0..host_count as usize).filter(|&to| (from < edge) != (to < edge)) {
                self.plan(at, SimulatedEvent::Cut { from, to, for_ms });
            }
        }
    }

    fn plan(&mut self, at_ms: u64, planned: SimulatedEvent) {
        self.order += 1;
        self.timeline.push(Reverse((at_ms, self.order, planned)));
    }

    fn run(&mut self) {
        while let Some(Reverse((at_ms, _, planned))) = self.timeline.pop() {
            if at_ms > END_MS {
                break;
            }
            self.now_ms = at_ms;
            self.apply(planned);
            self.check_bounds();
        }
        self.check_end();
    }

    fn apply(&mut self, planned: SimulatedEvent) {
        match planned {
            SimulatedEvent::Arrival { from, to } => self.arrive(from, to),
            SimulatedEvent::Opening { from, to } => self.try_open(from, to),
            SimulatedEvent::Wake { rank } => {
                if self.now() >= self.participants[rank].machine.next_tick() {
                    self.event(rank, AgreementEvent::Tick);
                }
            }
            SimulatedEvent::Poll { rank } => self.poll(rank),
            SimulatedEvent::Begin { rank } => self.begin(rank),
            SimulatedEvent::Kill { rank } => self.kill(rank),
            SimulatedEvent::Withdraw { rank } => self.withdraw(rank),
            SimulatedEvent::Stop { rank, for_ms } => {
                if self.participants[rank].is_alive && self.participants[rank].stopped_ms.is_none() {
                    self.participants[rank].stopped_ms = Some(self.now_ms);
                    let until = (self.now_ms + for_ms).min(FAULTS_END_MS + 2000).max(self.now_ms + 1);
                    self.plan(until, SimulatedEvent::Resume { rank });
                }
            }
            SimulatedEvent::Resume { rank } => self.resume(rank),
            SimulatedEvent::Cut { from, to, for_ms } => {
                if from != to {
                    *self.cuts.entry((from, to)).or_default() += 1;
                    let until = (self.now_ms + for_ms).min(FAULTS_END_MS).max(self.now_ms + 1);
                    self.plan(until, SimulatedEvent::Heal { from, to });
                }
            }
            SimulatedEvent::Heal { from, to } => {
                *self.cuts.entry((from, to)).or_default() -= 1;
            }
        }
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms)
    }

    fn delay(&mut self) -> u64 {
        1 + self.random.below(self.faults.delay_ms)
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.get(&(self.hosts[from], self.hosts[to])).is_some_and(|&count| count > 0)
    }

    fn is_present(&self, rank: usize) -> bool {
        self.participants[rank].is_alive && self.participants[rank].activity != RankActivity::Closed
    }

    fn event(&mut self, rank: usize, event: AgreementEvent) {
        if !self.is_present(rank) {
            return;
        }
        if self.participants[rank].stopped_ms.is_some() {
            self.participants[rank].inbox.push_back(event);
            return;
        }
        let now = self.now();
        let outputs = self.participants[rank].machine.handle(now, event);
        for output in outputs {
            match output {
                AgreementOutput::Send { to, message } => self.send(rank, to, message),
                AgreementOutput::Decided(decision) => self.decided(rank, decision),
                // A withdrawn rank ignores the decision and keeps answering.
                AgreementOutput::Excluded if self.participants[rank].activity == RankActivity::Withdrawn => {}
                AgreementOutput::Excluded => self.close(rank),
                AgreementOutput::GaveUp(_) => {
                    self.participants[rank].gave_up = true;
                    self.close(rank);
                }
            }
        }
        let next = self.participants[rank].machine.next_tick();
        if next < Duration::MAX {
            self.plan((next.as_millis() as u64).max(self.now_ms + 1), SimulatedEvent::Wake { rank });
        }
    }

    fn send(&mut self, from: usize, to: usize, message: AgreementMessage) {
        if self.open.contains(&pair(from, to)) {
            self.put_on_wire(from, to, ConnectionPayload::Message(message));
        } else if self.opening.insert((from, to)) {
            let delay = self.delay();
            self.plan(self.now_ms + 2 * delay, SimulatedEvent::Opening { from, to });
        }
    }

    fn put_on_wire(&mut self, from: usize, to: usize, payload: ConnectionPayload) {
        let delay = self.delay();
        let wire = self.in_transit.entry((from, to)).or_default();
        let at = wire.back().map_or(0, |(at, _)| *at).max(self.now_ms + delay);
        wire.push_back((at, payload));
        self.plan(at, SimulatedEvent::Arrival { from, to });
    }

    fn arrive(&mut self, from: usize, to: usize) {
        if self.is_cut(from, to) {
            // Retransmitted until the link heals.
            self.plan(self.now_ms + 50, SimulatedEvent::Arrival { from, to });
            return;
        }
        let Some((_, payload)) = self.in_transit.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return };
        if !self.is_present(to) {
            // The system reports a closed connection to the sender.
            if matches!(payload, ConnectionPayload::Message(_)) && self.is_present(from) {
                self.put_on_wire(to, from, ConnectionPayload::End);
            }
            return;
        }
        match payload {
            ConnectionPayload::Message(message) => self.event(to, AgreementEvent::Received { peer: from, message }),
            ConnectionPayload::End => self.event(to, AgreementEvent::Ended { peer: from }),
        }
    }

    fn try_open(&mut self, from: usize, to: usize) {
        if !self.is_present(from) || self.participants[from].stopped_ms.is_some() {
            self.opening.remove(&(from, to));
        } else if self.is_cut(from, to) || self.is_cut(to, from) {
            self.plan(self.now_ms + 50, SimulatedEvent::Opening { from, to });
        } else if !self.is_present(to) {
            self.opening.remove(&(from, to));
            self.event(from, AgreementEvent::Ended { peer: to });
        } else if self.participants[to].stopped_ms.is_some() {
            // The destination host is unreachable.
            self.plan(self.now_ms + 50, SimulatedEvent::Opening { from, to });
        } else {
            self.opening.remove(&(from, to));
            self.opening.remove(&(to, from));
            if self.open.insert(pair(from, to)) {
                self.event(to, AgreementEvent::Connected { peer: from });
                self.event(from, AgreementEvent::Connected { peer: to });
            }
        }
    }

    fn kill(&mut self, rank: usize) {
        if self.has_other_survivor(rank) && self.participants[rank].is_alive {
            self.participants[rank].is_alive = false;
            self.close_connections(rank);
        }
    }

    fn withdraw(&mut self, rank: usize) {
        if self.participants[rank].stopped_ms.is_some() {
            self.plan(self.now_ms + 50, SimulatedEvent::Withdraw { rank });
        } else if self.has_other_survivor(rank) && self.is_present(rank) {
            self.participants[rank].activity = RankActivity::Withdrawn;
            self.event(rank, AgreementEvent::Withdraw);
        }
    }

    /// Return whether another rank is left to continue, so that the outcome can be checked.
    fn has_other_survivor(&self, rank: usize) -> bool {
        let continues =
            |other: usize| self.is_present(other) && self.participants[other].activity != RankActivity::Withdrawn;
        (0..self.participants.len()).any(|other| other != rank && continues(other))
    }

    fn close(&mut self, rank: usize) {
        if self.participants[rank].activity != RankActivity::Closed {
            self.participants[rank].activity = RankActivity::Closed;
            self.close_connections(rank);
        }
    }

    fn close_connections(&mut self, rank: usize) {
        let peers: Vec<usize> =
            (0..self.participants.len()).filter(|&peer| self.open.contains(&pair(rank, peer))).collect();
        peers.into_iter().for_each(|peer| self.put_on_wire(rank, peer, ConnectionPayload::End));
    }

    fn resume(&mut self, rank: usize) {
        let Some(since) = self.participants[rank].stopped_ms.take() else { return };
        if self.now_ms - since > SILENCE_MS / 2 {
            self.participants[rank].was_ever_paused = true;
            self.event(rank, AgreementEvent::Suspended);
        }
        for event in std::mem::take(&mut self.participants[rank].inbox) {
            self.event(rank, event);
        }
        self.event(rank, AgreementEvent::Tick);
    }

    /// A rank detects that its world has failed: a member has ended, is silent, or has left the world.
    fn poll(&mut self, rank: usize) {
        let participant = &self.participants[rank];
        if participant.is_alive
            && participant.stopped_ms.is_none()
            && !participant.is_leaving
            && let RankActivity::Work(members) = &participant.activity
        {
            let has_failed = members.iter().any(|&other| {
                let peer = &self.participants[other];
                let is_silent = peer.stopped_ms.is_some_and(|since| self.now_ms > since + SILENCE_MS);
                let has_left = peer.activity != participant.activity;
                !peer.is_alive || is_silent || has_left || self.is_cut(other, rank)
            });
            if has_failed {
                let max_delay_ms = if self.faults.has_late && self.random.chance(20) { 2 * LATE_MS } else { 300 };
                let at = self.now_ms + self.random.below(max_delay_ms);
                self.participants[rank].is_leaving = true;
                self.plan(at, SimulatedEvent::Begin { rank });
            }
        }
        let again = 50 + self.random.below(200);
        self.plan(self.now_ms + again, SimulatedEvent::Poll { rank });
    }

    fn begin(&mut self, rank: usize) {
        if !self.is_present(rank) || self.participants[rank].activity == RankActivity::Withdrawn {
            return;
        }
        if self.participants[rank].stopped_ms.is_some() {
            self.plan(self.now_ms + 50, SimulatedEvent::Begin { rank });
            return;
        }
        self.participants[rank].is_leaving = false;
        self.participants[rank].activity = RankActivity::Agree;
        self.participants[rank].begun_ms = self.now_ms;
        self.event(rank, AgreementEvent::Begin { address: format!("address {rank} at {}", self.now_ms) });
    }

    fn decided(&mut self, rank: usize, decision: Decision) {
        let seed = self.seed;
        assert!(decision.members.contains(&rank), "seed {seed}: a surviving rank is in the list of survivors");
        let participant = &mut self.participants[rank];
        assert_eq!(participant.activity, RankActivity::Agree, "seed {seed}: only a waiting rank gets a decision");
        participant.activity = RankActivity::Work(decision.members.clone());
        participant.decisions.insert(decision.epoch, decision.members.clone());
        for (other, peer) in self.participants.iter().enumerate() {
            let is_checked = self.is_present(other) && !self.is_exempt(rank) && !self.is_exempt(other);
            if let Some(members) = peer.decisions.get(&decision.epoch).filter(|_| is_checked) {
                let epoch = decision.epoch;
                assert_eq!(members, &decision.members, "seed {seed}: ranks {other} and {rank} differ in epoch {epoch}");
            }
        }
    }

    /// On a single node, a rank that was suspended and has at most half of the ranks may continue separately.
    fn is_exempt(&self, rank: usize) -> bool {
        self.hosts.iter().all(|&host| host == 0) && self.participants[rank].was_ever_paused
    }

    fn check_bounds(&self) {
        let seed = self.seed;
        for (rank, participant) in self.participants.iter().enumerate().filter(|(rank, _)| self.is_present(*rank)) {
            // Without silent or late ranks, an agreement ends before any rank counts as late.
            let limit_ms = if self.faults.are_reported_at_once() {
                LATE_MS
            } else {
                TIMEOUTS.time_limit().as_millis() as u64 + 500
            };
            let deadline_ms = participant.begun_ms + limit_ms;
            let waits = participant.activity == RankActivity::Agree
                && participant.stopped_ms.is_none()
                && !participant.was_ever_paused;
            assert!(!waits || self.now_ms <= deadline_ms, "seed {seed}: rank {rank} waits too long");
            let stored_count = participant.machine.entry_count();
            assert!(
                stored_count <= 8 * self.participants.len() + participant.machine.decided.len(),
                "seed {seed}: {stored_count} stored entries"
            );
        }
    }

    fn check_end(&self) {
        let seed = self.seed;
        let is_here =
            |rank: &usize| self.is_present(*rank) && self.participants[*rank].activity != RankActivity::Withdrawn;
        for (rank, participant) in self.participants.iter().enumerate().filter(|(rank, _)| is_here(rank)) {
            let RankActivity::Work(members) = &participant.activity else {
                panic!("seed {seed}: rank {rank} is still at {:?}", participant.activity)
            };
            let are_equal = members.iter().all(|&other| self.participants[other].activity == participant.activity);
            assert!(are_equal, "seed {seed}: the members of the world of rank {rank} differ");
            assert!(members.contains(&rank), "seed {seed}: rank {rank} works in a world without this rank");
            let live = members.iter().all(|&other| self.participants[other].is_alive);
            assert!(live, "seed {seed}: rank {rank} works with dead ranks");
        }
        if self.faults.are_reported_at_once() {
            let out: Vec<usize> = (0..self.participants.len())
                .filter(|&rank| self.participants[rank].activity == RankActivity::Closed)
                .collect();
            assert!(out.is_empty(), "seed {seed}: {out:?} are excluded, but none was silent or late");
        }
    }
}

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

#[test]
fn survivors_agree_under_any_faults() {
    let seeds = match number("RIPIENO_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RIPIENO_SEEDS").unwrap_or(300),
    };
    let (mut decisions, mut excluded, mut gave_up) = (0, 0, 0);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let mut world = AgreementWorld::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        if let Err(panic) = outcome {
            eprintln!("repeat it: RIPIENO_SEED={seed} cargo test -p ripieno-run survivors_agree");
            std::panic::resume_unwind(panic);
        }
        decisions += world.participants.iter().map(|participant| participant.decisions.len()).sum::<usize>();
        excluded += world
            .participants
            .iter()
            .filter(|participant| participant.is_alive && participant.activity == RankActivity::Closed)
            .count();
        gave_up += world.participants.iter().filter(|participant| participant.gave_up).count();
    }
    println!("{count} seeds: {decisions} decisions learned, {excluded} live ranks excluded, {gave_up} of them gave up");
}
