//! Random scenarios from a seed: hosts, connections, clocks and faults.

use crate::random::WorldRandom;
use ripieno_run::membership::MembershipTiming;
use ripieno_run::membership::agreement::AgreementTimeouts;
use std::time::Duration;

pub const HEARTBEAT: Duration = Duration::from_millis(1000);
pub const TIMING: MembershipTiming =
    MembershipTiming { join_timeout: Duration::from_millis(3000), heartbeat_timeout: HEARTBEAT };
pub const TIMEOUTS: AgreementTimeouts = AgreementTimeouts { silence: HEARTBEAT, late: Duration::from_millis(3000) };
/// Faults occur before this time. After it, stopped ranks resume and cut connections heal.
pub const FAULTS_END_US: u64 = 8_000_000;
/// Upper bound of the time that a program computes between two calls.
pub const COMPUTING_US: u64 = 400_000;
/// End of the run; all ranks are idle before it.
pub const END_US: u64 = 240_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorldFault {
    Kill {
        rank: usize,
    },
    Stop {
        rank: usize,
        for_us: u64,
    },
    /// Packets from one host to another are lost.
    Cut {
        from: usize,
        to: usize,
        for_us: u64,
    },
}

/// The parameters of a world, drawn from its seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub replicas: usize,
    pub hosts: Vec<usize>,
    /// Upper bound of a packet's delay between hosts.
    pub delay_us: u64,
    pub link_bytes: usize,
    pub steps: usize,
    /// Time and kind of each fault.
    pub faults: Vec<(u64, WorldFault)>,
    /// The rank whose program raises an error, and the step.
    pub raises: Option<(usize, usize)>,
    /// The rank that calls a different collective, and the step.
    pub differs: Option<(usize, usize)>,
    /// Start of each rank, in virtual time.
    pub starts_us: Vec<u64>,
    /// Offset of each rank's clock in microseconds, and its drift in parts per million.
    pub clocks: Vec<(u64, u64)>,
}

impl Scenario {
    /// Draw the parameters of a world.
    pub fn random(seed: u64) -> Scenario {
        let mut random = WorldRandom(seed);
        let replicas = if random.chance(20) { 2 } else { 1 };
        let size = match replicas {
            2 => 2 * random.between(1, 4) as usize,
            _ => random.between(2, 7) as usize,
        };
        let is_one_node = random.chance(35);
        let per_host = if is_one_node { size } else { random.between(1, 3) as usize };
        let steps = random.between(6, 16) as usize;
        let mut scenario = Scenario {
            replicas,
            hosts: (0..size).map(|rank| rank / per_host).collect(),
            delay_us: [50, 500, 4_000, 20_000][random.below(4) as usize],
            link_bytes: [600, 4_000, 20_000][random.below(3) as usize],
            steps,
            faults: vec![],
            raises: None,
            differs: None,
            starts_us: (0..size).map(|_| random.below(200_000)).collect(),
            clocks: (0..size).map(|_| (random.below(1 << 40), random.below(10_000))).collect(),
        };
        scenario.draw_faults(&mut random);
        scenario
    }

    fn draw_faults(&mut self, random: &mut WorldRandom) {
        let size = self.hosts.len();
        let victim = |random: &mut WorldRandom| random.below(size as u64) as usize;
        if random.chance(10) && size > self.replicas {
            self.differs = Some((victim(random), random.below(self.steps as u64) as usize));
            return;
        }
        if random.chance(15) && self.replicas == 1 {
            self.raises = Some((victim(random), random.below(self.steps as u64) as usize));
        }
        let (has_stops, has_cuts) = (random.chance(50), self.host_count() > 1 && random.chance(50));
        let burst_us = random.between(100_000, 2_000_000);
        for _ in 0..random.below(4) {
            // Most faults occur in a burst, while ranks still handle the first one.
            let at = if random.chance(60) { burst_us + random.below(600_000) } else { random.below(FAULTS_END_US) };
            match random.below(4) {
                0 if has_stops => {
                    let for_us = if random.chance(50) { random.between(50, 700) } else { random.between(1_500, 8_000) };
                    self.faults.push((at, WorldFault::Stop { rank: victim(random), for_us: for_us * 1000 }));
                }
                1 | 2 if has_cuts => self.draw_cut(random, at),
                _ => self.faults.push((at, WorldFault::Kill { rank: victim(random) })),
            }
        }
    }

    /// Cut one host from one other or from all others, in one or both directions.
    fn draw_cut(&mut self, random: &mut WorldRandom, at: u64) {
        let count = self.host_count();
        let for_us = 1000 * if random.chance(40) { random.between(50, 700) } else { random.between(1_500, 8_000) };
        let first = random.below(count as u64) as usize;
        let others: Vec<usize> = match random.chance(50) {
            true => (0..count).filter(|&other| other != first).collect(),
            false => vec![(first + 1 + random.below(count as u64 - 1) as usize) % count],
        };
        let is_bidirectional = random.chance(60);
        for other in others {
            self.faults.push((at, WorldFault::Cut { from: first, to: other, for_us }));
            if is_bidirectional {
                self.faults.push((at, WorldFault::Cut { from: other, to: first, for_us }));
            }
        }
    }

    pub fn host_count(&self) -> usize {
        1 + self.hosts.iter().max().copied().unwrap_or(0)
    }

    /// Return whether the faults are only kills, which peers detect at once.
    pub fn has_only_kills(&self) -> bool {
        self.faults.iter().all(|(_, fault)| matches!(fault, WorldFault::Kill { .. }))
    }

    /// Return the upper bound of a call's duration: the documented bound, network delays, and the time added by faults
    /// that lose no rank.
    pub fn call_bound_us(&self) -> u64 {
        let without_faults = 3_000_000 + COMPUTING_US + 200 * self.delay_us;
        let per_fault = if self.has_only_kills() { 0 } else { HEARTBEAT.as_micros() as u64 + 1_500_000 };
        without_faults + (1 + self.faults.len() as u64) * per_fault
    }

    /// Return the upper bound of the time until a rank is in a smaller world.
    pub fn shrink_bound_us(&self) -> u64 {
        let once = (TIMEOUTS.late + 6 * TIMEOUTS.silence + HEARTBEAT + Duration::from_secs(2)).as_micros() as u64;
        if self.has_only_kills() { self.call_bound_us() + once / 2 } else { (2 + self.faults.len() as u64) * once }
    }
}
