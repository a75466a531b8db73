//! Worlds drawn from a seed: hosts, connections, clocks and faults.

use crate::dice::WorldRandom;
use ripieno_run::membership::MembershipTiming;
use ripieno_run::membership::agreement::AgreementTimeouts;
use std::time::Duration;

pub const HEARTBEAT: Duration = Duration::from_millis(1000);
pub const TIMING: MembershipTiming =
    MembershipTiming { join_timeout: Duration::from_millis(3000), heartbeat_timeout: HEARTBEAT };
pub const TIMEOUTS: AgreementTimeouts = AgreementTimeouts { silence: HEARTBEAT, late: Duration::from_millis(3000) };
/// Faults occur before this time. After it, stopped ranks resume and cut connections heal.
pub const CALM_AT_US: u64 = 8_000_000;
/// Upper bound of a program's computation between two calls.
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
    /// The rank with a program that raises, and the step.
    pub raises: Option<(usize, usize)>,
    /// The rank that calls a different collective, and the step.
    pub differs: Option<(usize, usize)>,
    /// Start of each rank, in virtual time.
    pub starts_us: Vec<u64>,
    /// Offset of each rank's clock in microseconds, and its drift in parts per million.
    pub clocks: Vec<(u64, u64)>,
}

impl Scenario {
    pub fn drawn(seed: u64) -> Scenario {
        let mut dice = WorldRandom(seed);
        let replicas = if dice.chance(20) { 2 } else { 1 };
        let size = match replicas {
            2 => 2 * dice.between(1, 4) as usize,
            _ => dice.between(2, 7) as usize,
        };
        let is_one_node = dice.chance(35);
        let per_host = if is_one_node { size } else { dice.between(1, 3) as usize };
        let steps = dice.between(6, 16) as usize;
        let mut scenario = Scenario {
            replicas,
            hosts: (0..size).map(|rank| rank / per_host).collect(),
            delay_us: [50, 500, 4_000, 20_000][dice.below(4) as usize],
            link_bytes: [600, 4_000, 20_000][dice.below(3) as usize],
            steps,
            faults: vec![],
            raises: None,
            differs: None,
            starts_us: (0..size).map(|_| dice.below(200_000)).collect(),
            clocks: (0..size).map(|_| (dice.below(1 << 40), dice.below(10_000))).collect(),
        };
        scenario.draw_faults(&mut dice);
        scenario
    }

    fn draw_faults(&mut self, dice: &mut WorldRandom) {
        let size = self.hosts.len();
        let victim = |dice: &mut WorldRandom| dice.below(size as u64) as usize;
        if dice.chance(10) && size > self.replicas {
            self.differs = Some((victim(dice), dice.below(self.steps as u64) as usize));
            return;
        }
        if dice.chance(15) && self.replicas == 1 {
            self.raises = Some((victim(dice), dice.below(self.steps as u64) as usize));
        }
        let (has_stops, has_cuts) = (dice.chance(50), self.host_count() > 1 && dice.chance(50));
        let together = dice.between(100_000, 2_000_000);
        for _ in 0..dice.below(4) {
            // Most faults occur close together, while ranks still handle the first one.
            let at = if dice.chance(60) { together + dice.below(600_000) } else { dice.below(CALM_AT_US) };
            match dice.below(4) {
                0 if has_stops => {
                    let for_us = if dice.chance(50) { dice.between(50, 700) } else { dice.between(1_500, 8_000) };
                    self.faults.push((at, WorldFault::Stop { rank: victim(dice), for_us: for_us * 1000 }));
                }
                1 | 2 if has_cuts => self.draw_cut(dice, at),
                _ => self.faults.push((at, WorldFault::Kill { rank: victim(dice) })),
            }
        }
    }

    /// Cut one host from one other or from all others, in one or both directions.
    fn draw_cut(&mut self, dice: &mut WorldRandom, at: u64) {
        let count = self.host_count();
        let for_us = 1000 * if dice.chance(40) { dice.between(50, 700) } else { dice.between(1_500, 8_000) };
        let one = dice.below(count as u64) as usize;
        let others: Vec<usize> = match dice.chance(50) {
            true => (0..count).filter(|&other| other != one).collect(),
            false => vec![(one + 1 + dice.below(count as u64 - 1) as usize) % count],
        };
        let is_both_ways = dice.chance(60);
        for other in others {
            self.faults.push((at, WorldFault::Cut { from: one, to: other, for_us }));
            if is_both_ways {
                self.faults.push((at, WorldFault::Cut { from: other, to: one, for_us }));
            }
        }
    }

    pub fn host_count(&self) -> usize {
        1 + self.hosts.iter().max().copied().unwrap_or(0)
    }

    /// Return whether all faults are detected at once: kills only.
    pub fn is_seen(&self) -> bool {
        self.faults.iter().all(|(_, fault)| matches!(fault, WorldFault::Kill { .. }))
    }

    /// Return the upper bound of a call's duration: the documented bound, network delays, and the time added by faults
    /// that lose no rank.
    pub fn call_bound_us(&self) -> u64 {
        let quiet = 3_000_000 + COMPUTING_US + 200 * self.delay_us;
        let silent = if self.is_seen() { 0 } else { HEARTBEAT.as_micros() as u64 + 1_500_000 };
        quiet + silent + self.faults.len() as u64 * silent
    }

    /// Return the upper bound of the time until a rank is in a smaller world.
    pub fn shrink_bound_us(&self) -> u64 {
        let once = (TIMEOUTS.late + 6 * TIMEOUTS.silence + HEARTBEAT + Duration::from_secs(2)).as_micros() as u64;
        if self.is_seen() { self.call_bound_us() + once / 2 } else { (2 + self.faults.len() as u64) * once }
    }
}
