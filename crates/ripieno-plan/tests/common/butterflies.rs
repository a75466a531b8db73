//! Sparse reductions for tests: key sets of many shapes, and in-memory execution of all ranks' state machines.

use ripieno_plan::sparse::team::{WorkPiece, WorkTeam};
use ripieno_plan::sparse::{Configurator, Degrees, MissingKeys, Routes};

/// A team that divides all work into a given number of pieces, however small, and computes the last piece first.
pub struct CuttingTeam(pub usize);

impl WorkTeam for CuttingTeam {
    fn piece_count(&self, _operations: usize) -> usize {
        self.0
    }

    fn compute(&self, _operations: usize, pieces: Vec<WorkPiece<'_>>) {
        pieces.into_iter().rev().for_each(|piece| piece());
    }
}

/// Contributed and requested keys of each rank, below `n`.
#[derive(Clone, Debug)]
pub struct RankKeys {
    pub n: u64,
    pub outs: Vec<Vec<u64>>,
    pub ins: Vec<Vec<u64>>,
}

/// The configuration results of all ranks.
pub struct ConfiguredButterfly {
    pub routes: Vec<Routes>,
    pub missing: Vec<MissingKeys>,
}

/// Create the state machines of all ranks before their first step.
pub fn machines(degrees: &Degrees, keys: &RankKeys, dense_above: f64) -> Vec<Configurator> {
    let machine = |rank: usize| {
        Configurator::new(rank, degrees, keys.n, keys.outs[rank].clone(), keys.ins[rank].clone(), dense_above)
    };
    (0..degrees.world_size()).map(machine).collect()
}

/// Execute one step on all ranks and check that each rank receives exactly the messages that it expects.
pub fn take_step(machines: &mut [Configurator], step: usize, team: &dyn WorkTeam) {
    let sent: Vec<Vec<(usize, Vec<u8>)>> = machines.iter().map(|machine| machine.outgoing(step, team)).collect();
    for (rank, machine) in machines.iter_mut().enumerate() {
        let to_rank = |from: usize| sent[from].iter().find(|(to, _)| *to == rank).map(|(_, bytes)| (from, bytes));
        let messages: Vec<(usize, &Vec<u8>)> = (0..sent.len()).filter_map(to_rank).collect();
        let mut expected = machine.incoming_peers(step);
        expected.sort_unstable();
        assert!(expected.into_iter().eq(messages.iter().map(|(from, _)| *from)), "rank {rank}, step {step}");
        machine.absorb(step, &messages, team).unwrap();
    }
}

/// Run all state machines to completion.
pub fn configured(degrees: &Degrees, keys: &RankKeys, dense_above: f64) -> ConfiguredButterfly {
    let found = Configurator::finish_all(machines(degrees, keys, dense_above)).unwrap();
    let (routes, missing) = found.into_iter().unzip();
    ConfiguredButterfly { routes, missing }
}

/// Return the next number of splitmix64, below `limit`.
pub fn random(state: &mut u64, limit: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % limit
}

/// Return the keys of `0..n` for which `is_member` returns true.
pub fn drawn(n: u64, mut is_member: impl FnMut(u64) -> bool) -> Vec<u64> {
    (0..n).filter(|&key| is_member(key)).collect()
}

/// Return key sets of every shape for `p` ranks, each with a name.
pub fn shapes(p: usize, seed: u64) -> Vec<(&'static str, RankKeys)> {
    let n = 3 * p as u64 + 5;
    let mut state = seed;
    let mut sets = |is_member: fn(usize, usize, u64, &mut u64) -> bool| -> Vec<Vec<u64>> {
        (0..p).map(|rank| drawn(n, |key| is_member(p, rank, key, &mut state))).collect()
    };
    let at_random = |_: usize, _: usize, _: u64, state: &mut u64| random(state, 3) == 0;
    let power_law = |_: usize, _: usize, key: u64, state: &mut u64| random(state, (key + 5) / 4) == 0;
    let disjoint = |p: usize, rank: usize, key: u64, _: &mut u64| key as usize % p == rank;
    let single = |p: usize, rank: usize, key: u64, _: &mut u64| (rank as u64 * 7 + 3) % (3 * p as u64 + 5) == key;
    let of_every_third =
        |_: usize, rank: usize, _: u64, state: &mut u64| rank.is_multiple_of(3) && random(state, 2) == 0;
    let (none, all) = (vec![vec![]; p], vec![(0..n).collect(); p]);
    vec![
        ("random", RankKeys { n, outs: sets(at_random), ins: sets(at_random) }),
        ("power law", RankKeys { n, outs: sets(power_law), ins: sets(power_law) }),
        ("disjoint", RankKeys { n, outs: sets(disjoint), ins: sets(at_random) }),
        ("identical", RankKeys { n, outs: all.clone(), ins: all }),
        ("single", RankKeys { n, outs: sets(single), ins: sets(single) }),
        ("some empty", RankKeys { n, outs: sets(of_every_third), ins: sets(at_random) }),
        ("nothing requested", RankKeys { n, outs: sets(at_random), ins: none.clone() }),
        ("nothing contributed", RankKeys { n, outs: none.clone(), ins: sets(at_random) }),
        ("no keys", RankKeys { n: 0, outs: none.clone(), ins: none }),
    ]
}
