//! The play: all ranks' plans, played on a cluster by the virtual clock.
//!
//! Every operation is a flow: bytes that pass at a rate until the rate changes. Rates are shared fairly on every wire
//! ([`fair`](crate::fair)); a flow that has come as far as its [waits](crate::waits) let it goes on as fast as what it
//! waits for. Messages of one segment take turns at a port, as in the [cost](ripieno_plan::cost) of plans; longer ones
//! share it. A receive is a flow of its own, which follows its send, so the network holds what a receiver has no time
//! for. What a step costs depends on the flows that it concerns, not on all: a chain of 100 000 ranks takes seconds.

use crate::clock::Clock;
use crate::cluster::{Cluster, Kind, Place, Uses};
use crate::fair::{Demand, rates};
use crate::waits::{Wait, of_plan};
use ripieno_plan::cost::Transfer;
use ripieno_plan::{Operation, Plan};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;

/// How fast a flow is that costs nothing, in bytes per second.
const AT_ONCE: f64 = 1e30;
/// Times and positions that differ by less than this part are the same.
const EQUAL: f64 = 1e-11;
/// After so many rounds of balancing, what was balanced once stays in.
const ROUNDS_APART: usize = 8;
/// Operations of all ranks together: more do not fit the memory of a usual machine.
pub const OPERATIONS_MAX: usize = 10_000_000;

/// What came of a play.
#[derive(Clone, Debug)]
pub struct Played {
    /// When each rank was done; none, if it never was.
    pub finish_s: Vec<Option<f64>>,
    /// The messages that arrived, in the order in which they did.
    pub transfers: Vec<Transfer>,
    /// Bytes that each rank sent, those that never arrived among them.
    pub sent_bytes: Vec<usize>,
    /// The wires that carried something.
    pub loads: Vec<Load>,
}

/// What one wire carried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Which wire.
    pub place: Place,
    /// What it carried.
    pub bytes: usize,
    /// How long that would have taken it alone.
    pub busy_s: f64,
}

/// Why plans cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unplayable {
    /// A message is sent that nobody receives, or the other way round, or its lengths differ.
    Unmatched {
        /// Who sends.
        sender: usize,
        /// Who receives.
        receiver: usize,
    },
    /// More operations than there is room for.
    TooLarge {
        /// How many at least.
        operation_count: usize,
    },
}

impl fmt::Display for Unplayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unplayable::Unmatched { sender, receiver } => {
                write!(f, "what rank {sender} sends is not what rank {receiver} receives of it")
            }
            Unplayable::TooLarge { operation_count } => {
                write!(f, "{operation_count} operations and more: expected at most {OPERATIONS_MAX}")
            }
        }
    }
}

impl std::error::Error for Unplayable {}

impl Played {
    /// When the last rank was done; none, if one never was.
    pub fn time_s(&self) -> Option<f64> {
        self.finish_s.iter().try_fold(0.0, |latest: f64, finish_s| finish_s.map(|finish_s| latest.max(finish_s)))
    }

    /// The wire that was busy longest.
    pub fn busiest(&self) -> Option<&Load> {
        self.loads.iter().max_by(|one, other| one.busy_s.total_cmp(&other.busy_s))
    }

    /// Bytes of the messages that arrived by each kind of link.
    pub fn bytes_by_kind(&self, cluster: &Cluster) -> [(Kind, usize); 3] {
        let mut sums = [(Kind::Memory, 0), (Kind::Cable, 0), (Kind::Uplink, 0)];
        for transfer in &self.transfers {
            sums[cluster.kind(transfer.sender, transfer.receiver) as usize].1 += transfer.length_bytes;
        }
        sums
    }
}

/// Plays one plan per rank.
pub fn play(cluster: &Cluster, plans: impl Iterator<Item = Plan>) -> Result<Played, Unplayable> {
    let mut stage = Stage::set(cluster, plans)?;
    stage.run();
    Ok(stage.played())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Active,
    Done,
    Dead,
}

struct Flow {
    rank: u32,
    operation: u32,
    /// How many messages come before it on its link.
    turn: u32,
    port: Option<u32>,
    is_one_segment: bool,
    uses: Uses,
    limit: f64,
    length: f64,
    state: State,
    /// How far it was at `since_s`, and its rate since then.
    position: f64,
    since_s: f64,
    rate: f64,
    /// The waits that keep it from beginning.
    pending: u32,
    /// Where it will be at its next event, or whom it will have caught up with; events of older versions are void.
    target: f64,
    chased: Option<u32>,
    version: u32,
}

struct Message {
    sender: u32,
    receiver: u32,
    is_receive: bool,
    flow: u32,
}

#[derive(Clone, Copy, Default)]
struct Met {
    threshold: bool,
    release: bool,
}

enum Event {
    Flow { flow: u32, version: u32 },
    Death { node: usize },
    Cut { ends: [usize; 2] },
}

struct Stage<'a> {
    cluster: &'a Cluster,
    rank_count: usize,
    flows: Vec<Flow>,
    /// Per message: the flows at its ends.
    pairs: Vec<[u32; 2]>,
    /// Per flow: its message, if it is an end of one.
    pair_of: Vec<Option<u32>>,
    starts_s: Vec<f64>,
    waits: Vec<Wait>,
    met: Vec<Met>,
    /// Per flow: its waits, and those for it.
    waits_of: Lists,
    waits_for: Lists,
    /// Per wire: the active flows, what it carried, and how long that takes.
    users: Vec<Vec<u32>>,
    carried: Vec<(f64, f64)>,
    /// Per port: whether a message of one segment has it, and which want it.
    is_taken: Vec<bool>,
    queued: Vec<BinaryHeap<Reverse<Turn>>>,
    candidates: BinaryHeap<Reverse<Turn>>,
    clock: Clock<Event>,
    /// Flows whose rates may be wrong, and those whose next event may be.
    unbalanced: BTreeSet<u32>,
    unscheduled: BTreeSet<u32>,
    transfers: Vec<Transfer>,
    finish_s: Vec<f64>,
}

/// Who comes first of those that can begin: links take turns; then as the plans have it.
type Turn = (u32, u32, u32, u32);

/// Lists of numbers by number.
struct Lists {
    starts: Vec<u32>,
    entries: Vec<u32>,
}

impl Lists {
    fn of(count: usize, keys: impl Iterator<Item = u32> + Clone) -> Lists {
        let mut starts = vec![0u32; count + 1];
        keys.clone().for_each(|key| starts[key as usize + 1] += 1);
        (0..count).for_each(|key| starts[key + 1] += starts[key]);
        let mut next = starts.clone();
        let mut entries = vec![0; starts[count] as usize];
        for (entry, key) in keys.enumerate() {
            entries[next[key as usize] as usize] = entry as u32;
            next[key as usize] += 1;
        }
        Lists { starts, entries }
    }

    fn range(&self, key: usize) -> std::ops::Range<usize> {
        self.starts[key] as usize..self.starts[key + 1] as usize
    }

    fn at(&self, key: usize) -> &[u32] {
        &self.entries[self.range(key)]
    }
}

impl<'a> Stage<'a> {
    /// All ranks before their first operation.
    fn set(cluster: &'a Cluster, plans: impl Iterator<Item = Plan>) -> Result<Stage<'a>, Unplayable> {
        let (mut flows, mut waits, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        let mut rank_count = 0;
        for (rank, plan) in plans.enumerate() {
            rank_count += 1;
            let mut numbers = vec![None; plan.operations().len()];
            for (index, operation) in plan.operations().iter().enumerate() {
                if operation.length_bytes() == 0 {
                    continue;
                }
                numbers[index] = Some(flows.len() as u32);
                if let Some(message) = end_of(rank, operation, flows.len() as u32) {
                    messages.push(message);
                }
                flows.push(flow(cluster, rank, index, operation));
            }
            if flows.len() > OPERATIONS_MAX {
                return Err(Unplayable::TooLarge { operation_count: flows.len() });
            }
            waits.extend(of_plan(&plan, cluster.segment_bytes, |index| numbers[index]));
        }
        let pairs = matched(cluster, messages, &mut flows, &mut waits)?;
        Ok(Stage::ready(cluster, rank_count, flows, pairs, waits))
    }

    fn ready(
        cluster: &'a Cluster,
        rank_count: usize,
        mut flows: Vec<Flow>,
        pairs: Vec<[u32; 2]>,
        waits: Vec<Wait>,
    ) -> Stage<'a> {
        let count = flows.len();
        waits.iter().filter(|wait| wait.at == 0.0).for_each(|wait| flows[wait.by as usize].pending += 1);
        let mut pair_of = vec![None; count];
        for (number, ends) in pairs.iter().enumerate() {
            ends.iter().for_each(|&end| pair_of[end as usize] = Some(number as u32));
        }
        let mut clock = Clock::default();
        cluster.faults.deaths().iter().for_each(|&(node, at_s)| clock.note(at_s, Event::Death { node }));
        cluster.faults.cuts().iter().for_each(|&(ends, at_s)| clock.note(at_s, Event::Cut { ends }));
        Stage {
            cluster,
            rank_count,
            starts_s: vec![0.0; pairs.len()],
            pair_of,
            pairs,
            met: vec![Met::default(); waits.len()],
            waits_of: Lists::of(count, waits.iter().map(|wait| wait.by)),
            waits_for: Lists::of(count, waits.iter().map(|wait| wait.on)),
            waits,
            users: vec![Vec::new(); cluster.wire_count()],
            carried: vec![(0.0, 0.0); cluster.wire_count()],
            is_taken: vec![false; 2 * rank_count],
            queued: (0..2 * rank_count).map(|_| BinaryHeap::new()).collect(),
            candidates: (0..count as u32)
                .filter(|&flow| flows[flow as usize].pending == 0)
                .map(|flow| Reverse(turn(&flows, flow)))
                .collect(),
            clock,
            unbalanced: BTreeSet::new(),
            unscheduled: BTreeSet::new(),
            transfers: Vec::new(),
            finish_s: vec![0.0; rank_count],
            flows,
        }
    }

    fn run(&mut self) {
        self.settle();
        while let Some(event) = self.clock.advance() {
            self.happen(event);
            while let Some(event) = self.clock.also_now(EQUAL * self.clock.now_s()) {
                self.happen(event);
            }
            self.settle();
        }
    }

    /// Begins what can begin, and gives everything its rate.
    fn settle(&mut self) {
        while let Some(Reverse(turn)) = self.candidates.pop() {
            self.begin(turn);
        }
        self.balance();
        for flow in std::mem::take(&mut self.unscheduled) {
            self.schedule(flow);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Flow { flow, version } => {
                let it = &self.flows[flow as usize];
                if it.version == version && it.state == State::Active {
                    self.come(flow);
                }
            }
            Event::Death { node } => {
                let at = self.cluster.topology.clone();
                let dying = (0..self.flows.len()).filter(|&flow| at.node(self.flows[flow].rank as usize) == node);
                dying.collect::<Vec<_>>().into_iter().for_each(|flow| self.die(flow as u32));
            }
            Event::Cut { ends: [one, other] } => {
                let is_between = |pair: &[u32; 2]| {
                    let ranks = pair.map(|end| self.flows[end as usize].rank as usize);
                    ranks == [one, other] || ranks == [other, one]
                };
                let cut: Vec<u32> = self.pairs.iter().filter(|pair| is_between(pair)).flatten().copied().collect();
                cut.into_iter().for_each(|flow| self.die(flow));
            }
        }
    }

    /// A flow has come to where it was to be.
    fn come(&mut self, flow: u32) {
        let it = &self.flows[flow as usize];
        let position = match it.chased {
            Some(wait) => self.bound(wait as usize).0,
            None => it.target,
        };
        let is_chasing = it.chased.is_some();
        self.put(flow, position);
        if is_chasing {
            self.unbalanced.insert(flow);
        }
        self.unscheduled.insert(flow);
        self.tell(flow);
        let it = &self.flows[flow as usize];
        if it.position >= it.length * (1.0 - EQUAL) {
            self.end(flow);
        }
    }

    /// Tells those that wait for a flow how far it is.
    fn tell(&mut self, flow: u32) {
        let (position, slack) = {
            let it = &self.flows[flow as usize];
            (it.position, it.length * EQUAL)
        };
        for index in self.waits_for.range(flow as usize) {
            let number = self.waits_for.entries[index] as usize;
            let (wait, met) = (self.waits[number], self.met[number]);
            let threshold = position + slack >= wait.threshold;
            let release = position + slack >= wait.release;
            if (threshold, release) == (met.threshold, met.release) {
                continue;
            }
            self.met[number] = Met { threshold, release };
            let waiting = &mut self.flows[wait.by as usize];
            match waiting.state {
                State::Active => {
                    self.unbalanced.insert(wait.by);
                }
                State::Waiting if threshold && !met.threshold && wait.at == 0.0 => {
                    waiting.pending -= 1;
                    if waiting.pending == 0 {
                        self.candidates.push(Reverse(turn(&self.flows, wait.by)));
                    }
                }
                _ => {}
            }
        }
    }

    fn begin(&mut self, turn: Turn) {
        let flow = turn.3;
        let it = &self.flows[flow as usize];
        if it.state != State::Waiting {
            return;
        }
        if let Some(port) = it.port.filter(|_| it.is_one_segment) {
            if self.is_taken[port as usize] {
                self.queued[port as usize].push(Reverse(turn));
                return;
            }
            self.is_taken[port as usize] = true;
        }
        let now_s = self.clock.now_s();
        let it = &mut self.flows[flow as usize];
        (it.state, it.since_s) = (State::Active, now_s);
        let uses = it.uses;
        uses.iter().for_each(|(wire, _)| self.users[wire].push(flow));
        if let Some(pair) = self.pair_of[flow as usize]
            && self.pairs[pair as usize][0] == flow
        {
            self.starts_s[pair as usize] = now_s;
        }
        self.unbalanced.insert(flow);
        self.unscheduled.insert(flow);
        self.tell(flow);
    }

    fn end(&mut self, flow: u32) {
        let now_s = self.clock.now_s();
        self.leave(flow, State::Done);
        let it = &self.flows[flow as usize];
        self.finish_s[it.rank as usize] = now_s;
        let Some(pair) = self.pair_of[flow as usize] else { return };
        let [send, receive] = self.pairs[pair as usize].map(|end| &self.flows[end as usize]);
        if self.pairs[pair as usize][1] == flow {
            self.transfers.push(Transfer {
                sender: send.rank as usize,
                send: send.operation as usize,
                receiver: receive.rank as usize,
                receive: receive.operation as usize,
                length_bytes: receive.length as usize,
                start_s: self.starts_s[pair as usize],
                end_s: now_s,
            });
        }
    }

    fn die(&mut self, flow: u32) {
        match self.flows[flow as usize].state {
            State::Waiting => self.flows[flow as usize].state = State::Dead,
            State::Active => {
                let position = self.position(flow);
                self.put(flow, position);
                self.leave(flow, State::Dead);
                for &wait in self.waits_for.at(flow as usize) {
                    let by = self.waits[wait as usize].by;
                    if self.flows[by as usize].state == State::Active {
                        self.unbalanced.insert(by);
                    }
                }
            }
            State::Done | State::Dead => {}
        }
    }

    /// A flow gives back its wires and its port.
    fn leave(&mut self, flow: u32, state: State) {
        let it = &mut self.flows[flow as usize];
        (it.state, it.rate) = (state, 0.0);
        let (uses, position, port) = (it.uses, it.position, it.port.filter(|_| it.is_one_segment));
        for (wire, s_per_byte) in uses.iter() {
            let users = &mut self.users[wire];
            users.retain(|&user| user != flow);
            self.unbalanced.extend(users.iter());
            self.carried[wire].0 += position;
            self.carried[wire].1 += position * s_per_byte;
        }
        if let Some(port) = port {
            self.is_taken[port as usize] = false;
            self.candidates.extend(self.queued[port as usize].pop());
        }
    }

    /// Where a flow is now.
    fn position(&self, flow: u32) -> f64 {
        let it = &self.flows[flow as usize];
        let passed_s = self.clock.now_s() - it.since_s;
        if passed_s > 0.0 { (it.position + it.rate * passed_s).min(it.length) } else { it.position }
    }

    fn put(&mut self, flow: u32, position: f64) {
        let now_s = self.clock.now_s();
        let it = &mut self.flows[flow as usize];
        (it.position, it.since_s) = (position, now_s);
    }

    /// How far a wait lets its flow be, and how fast that grows.
    fn bound(&self, wait: usize) -> (f64, f64) {
        let Wait { on, at, threshold, .. } = self.waits[wait];
        if !self.met[wait].threshold {
            return (at, 0.0);
        }
        (at + (self.position(on) - threshold).max(0.0), self.flows[on as usize].rate)
    }

    /// Gives flows their fair rates, and those that these concern.
    fn balance(&mut self) {
        let mut all: BTreeSet<u32> = BTreeSet::new();
        for round in 0.. {
            let mut concerned = std::mem::take(&mut self.unbalanced);
            if concerned.is_empty() {
                return;
            }
            if round >= ROUNDS_APART {
                all.append(&mut concerned);
                concerned = all.clone();
            }
            let concerned = self.sharing(concerned);
            self.share(&concerned);
            if round >= ROUNDS_APART {
                all.extend(concerned);
            }
        }
    }

    /// Active flows, and all that share a wire with one of them.
    fn sharing(&self, some: BTreeSet<u32>) -> BTreeSet<u32> {
        let mut found: BTreeSet<u32> =
            some.into_iter().filter(|&flow| self.flows[flow as usize].state == State::Active).collect();
        let mut open: Vec<u32> = found.iter().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(flow) = open.pop() {
            for (wire, _) in self.flows[flow as usize].uses.iter() {
                if self.users[wire].len() > 1 && seen.insert(wire) {
                    open.extend(self.users[wire].iter().filter(|&&user| found.insert(user)));
                }
            }
        }
        found
    }

    fn share(&mut self, concerned: &BTreeSet<u32>) {
        let members: Vec<u32> = concerned.iter().copied().collect();
        let demands: Vec<Demand> = members.iter().map(|&flow| self.demand(flow, &members)).collect();
        for (&flow, rate) in members.iter().zip(rates(&demands)) {
            let old = self.flows[flow as usize].rate;
            if (rate - old).abs() <= EQUAL * rate.max(old) {
                continue;
            }
            let position = self.position(flow);
            self.put(flow, position);
            self.flows[flow as usize].rate = rate;
            self.unscheduled.insert(flow);
            for index in self.waits_for.range(flow as usize) {
                let number = self.waits_for.entries[index] as usize;
                let by = self.waits[number].by;
                let is_bound = self.met[number].threshold && !self.met[number].release;
                if !is_bound || self.flows[by as usize].state != State::Active {
                    continue;
                }
                self.unscheduled.insert(by);
                if !concerned.contains(&by) && self.is_tight(number) {
                    self.unbalanced.insert(by);
                }
            }
        }
    }

    /// What a flow asks for; `members` get their rates with it.
    fn demand(&self, flow: u32, members: &[u32]) -> Demand {
        let it = &self.flows[flow as usize];
        let mut demand = Demand { wires: it.uses.iter().collect(), limit: it.limit, behind: Vec::new() };
        for &wait in self.waits_of.at(flow as usize) {
            let wait = wait as usize;
            if self.met[wait].release || !self.is_tight(wait) {
                continue;
            }
            let on = self.waits[wait].on;
            match members.binary_search(&on) {
                Ok(ahead) if self.met[wait].threshold => demand.behind.push(ahead),
                _ => demand.limit = demand.limit.min(self.bound(wait).1),
            }
        }
        demand
    }

    /// Whether a flow is as far as a wait lets it be.
    fn is_tight(&self, wait: usize) -> bool {
        let by = self.waits[wait].by;
        self.position(by) >= self.bound(wait).0 - self.flows[by as usize].length * EQUAL
    }

    /// Notes when a flow comes to where others wait for it, to its end, or to where it must wait itself.
    fn schedule(&mut self, flow: u32) {
        let it = &self.flows[flow as usize];
        if it.state != State::Active {
            return;
        }
        let (position, now_s, slack) = (self.position(flow), self.clock.now_s(), it.length * EQUAL);
        let mut target = it.length;
        for &wait in self.waits_for.at(flow as usize) {
            let (wait, met) = (&self.waits[wait as usize], self.met[wait as usize]);
            let awaited = [(met.threshold, wait.threshold), (met.release, wait.release)];
            let open = awaited.into_iter().filter(|(is_met, _)| !is_met).map(|(_, at)| at);
            target = open.filter(|&at| at > position + slack).fold(target, f64::min);
        }
        let mut at_s = if it.rate > 0.0 { now_s + (target - position) / it.rate } else { f64::INFINITY };
        let mut chased = None;
        for &wait in self.waits_of.at(flow as usize) {
            let (bound, slope) = self.bound(wait as usize);
            let is_behind = !self.met[wait as usize].release && bound > position + slack;
            if is_behind && it.rate > slope * (1.0 + EQUAL) {
                let caught_s = now_s + (bound - position) / (it.rate - slope);
                if caught_s < at_s {
                    (at_s, chased) = (caught_s, Some(wait));
                }
            }
        }
        let it = &mut self.flows[flow as usize];
        it.version += 1;
        (it.target, it.chased) = (target, chased);
        let version = it.version;
        if at_s < f64::INFINITY {
            self.clock.note(at_s, Event::Flow { flow, version });
        }
    }

    fn played(self) -> Played {
        let mut is_done = vec![true; self.rank_count];
        let mut sent_bytes = vec![0.0; self.rank_count];
        for flow in &self.flows {
            is_done[flow.rank as usize] &= flow.state == State::Done;
        }
        for [send, _] in &self.pairs {
            let send = &self.flows[*send as usize];
            sent_bytes[send.rank as usize] += send.position;
        }
        let finish_s = self.finish_s.iter().zip(is_done).map(|(&finish_s, is_done)| is_done.then_some(finish_s));
        let load = |(wire, &(bytes, busy_s)): (usize, &(f64, f64))| Load {
            place: self.cluster.place(wire),
            bytes: bytes.round() as usize,
            busy_s,
        };
        Played {
            finish_s: finish_s.collect(),
            sent_bytes: sent_bytes.into_iter().map(|bytes: f64| bytes.round() as usize).collect(),
            loads: self.carried.iter().enumerate().filter(|(_, carried)| carried.0 > 0.0).map(load).collect(),
            transfers: self.transfers,
        }
    }
}

fn turn(flows: &[Flow], flow: u32) -> Turn {
    let it = &flows[flow as usize];
    (it.turn, it.operation, it.rank, flow)
}

fn flow(cluster: &Cluster, rank: usize, index: usize, operation: &Operation) -> Flow {
    let is_combined = matches!(operation, Operation::Combine { .. }) && cluster.gamma_s_per_byte > 0.0;
    let length_bytes = operation.length_bytes();
    let port = match operation {
        Operation::Send { .. } => Some(2 * rank as u32),
        Operation::Receive { .. } | Operation::Reduce { .. } => Some(2 * rank as u32 + 1),
        Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => None,
    };
    Flow {
        rank: rank as u32,
        operation: index as u32,
        turn: 0,
        port,
        is_one_segment: cluster.segment_count(length_bytes) == 1,
        uses: match *operation {
            Operation::Send { to, .. } => cluster.sending(rank, to, length_bytes),
            Operation::Receive { from, .. } => cluster.receiving(from, rank, length_bytes, false),
            Operation::Reduce { from, .. } => cluster.receiving(from, rank, length_bytes, true),
            Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => Uses::default(),
        },
        limit: if is_combined { 1.0 / cluster.gamma_s_per_byte } else { AT_ONCE },
        length: length_bytes as f64,
        state: State::Waiting,
        position: 0.0,
        since_s: 0.0,
        rate: 0.0,
        pending: 0,
        target: 0.0,
        chased: None,
        version: 0,
    }
}

fn end_of(rank: usize, operation: &Operation, flow: u32) -> Option<Message> {
    let (sender, receiver, is_receive) = match *operation {
        Operation::Send { to, .. } => (rank, to, false),
        Operation::Receive { from, .. } | Operation::Reduce { from, .. } => (from, rank, true),
        Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => return None,
    };
    Some(Message { sender: sender as u32, receiver: receiver as u32, is_receive, flow })
}

/// Pairs each send with the receive that it meets; messages of a link follow each other, and receives their sends.
fn matched(
    cluster: &Cluster,
    mut messages: Vec<Message>,
    flows: &mut [Flow],
    waits: &mut Vec<Wait>,
) -> Result<Vec<[u32; 2]>, Unplayable> {
    messages.sort_by_key(|message| (message.sender, message.receiver, message.is_receive, message.flow));
    let mut pairs = Vec::with_capacity(messages.len() / 2);
    for link in messages.chunk_by(|one, next| (one.sender, one.receiver) == (next.sender, next.receiver)) {
        let (sends, receives) = link.split_at(link.partition_point(|message| !message.is_receive));
        let ends = || sends.iter().zip(receives).map(|(send, receive)| [send.flow, receive.flow]);
        let is_as_long = |[send, receive]: [u32; 2]| flows[send as usize].length == flows[receive as usize].length;
        if sends.len() != receives.len() || !ends().all(is_as_long) {
            let (sender, receiver) = (link[0].sender as usize, link[0].receiver as usize);
            return Err(Unplayable::Unmatched { sender, receiver });
        }
        let mut before: Option<[u32; 2]> = None;
        for (number, pair) in ends().enumerate() {
            let [send, receive] = pair;
            let length = flows[send as usize].length;
            pair.iter().for_each(|&end| flows[end as usize].turn = number as u32);
            waits.push(Wait { on: send, by: receive, at: 0.0, threshold: 0.0, release: length });
            if let Some(queue) = cluster.queue_bytes.map(|bytes| bytes as f64).filter(|&queue| queue < length) {
                waits.push(Wait { on: receive, by: send, at: queue, threshold: 0.0, release: length });
            }
            for (earlier, end) in before.into_iter().flatten().zip(pair) {
                let length = flows[earlier as usize].length;
                waits.push(Wait { on: earlier, by: end, at: 0.0, threshold: length, release: length });
            }
            before = Some(pair);
            pairs.push(pair);
        }
    }
    Ok(pairs)
}
