//! Fuzz test of the key sets that peers send during the configuration of a sparse reduction: damaged sets are
//! rejected or produce a plan.

use ripieno_fuzz::{Fuzz, FuzzAllocator};
use ripieno_plan::Op;
use ripieno_plan::sparse::team::SingleThread;
use ripieno_plan::sparse::{Configurator, Degrees};

#[global_allocator]
static ALLOCATOR: FuzzAllocator = FuzzAllocator;

/// Create two ranks over the keys `0..n`. Each rank contributes the keys that the other requests.
fn machines(n: u64, keys: [&[u64]; 2], dense_above: f64) -> [Configurator; 2] {
    let machine = |rank: usize| {
        Configurator::new(rank, &Degrees::direct(2), n, keys[rank].to_vec(), keys[1 - rank].to_vec(), dense_above)
    };
    [machine(0), machine(1)]
}

/// Return the message of rank 1 to rank 0 with its keys.
fn sent(n: u64, keys: &[u64], dense_above: f64) -> Vec<u8> {
    let [_, machine] = machines(n, [&[1], keys], dense_above);
    machine.outgoing(0, &SingleThread).remove(0).1
}

/// Process the message of rank 1 and create a plan.
fn planned(n: u64, dense_above: f64, message: &[u8]) -> Result<usize, &'static str> {
    let [mut machine, _] = machines(n, [&[1, 12], &[2, 3]], dense_above);
    machine.absorb(0, &[(1, message)], &SingleThread).map_err(|malformed| malformed.reason)?;
    let (routes, missing) = machine.finish(&SingleThread);
    let plan = routes.plan(4, 4, Op::Sum);
    assert!(missing.examples.len() as u64 <= missing.count);
    Ok(plan.operations().len())
}

#[test]
fn damaged_key_sets_are_rejected_or_produce_a_plan() {
    for (name, n, dense_above) in [
        ("key-sets-short", 200, 0.5),
        ("key-sets-dense", 300, 0.0),
        ("key-sets-listed", 5_000, 2.0),
        ("key-sets-long", 1 << 40, 0.9),
    ] {
        let all: Vec<u64> = (0..n.min(150)).collect();
        let some: Vec<u64> = (0..n).step_by((n / 20) as usize).collect();
        let valid = [&all[..], &some, &[], &[n - 1]].map(|keys| sent(n, keys, dense_above));
        let fuzz = Fuzz::new(name, env!("CARGO_MANIFEST_DIR"), valid);
        fuzz.allowing(|bytes| (64 << 10) + 256 * bytes).run(|message| planned(n, dense_above, message));
    }
}
