//! Measures keyed aggregation: sums rows of one float64 by random integer keys.
//!
//!     aggregate [ROWS [KEYS [THREADS [ADD_ROWS [ROUNDS]]]]]        (default: 25000000 1000000 1 1000000 5)
//!
//! Prints the elapsed time and the CPU time of each round. On a shared machine, the CPU time varies less. The sums are
//! compared with sums in an array indexed by key.

use ripieno::keyed::{Aggregation, KeyColumn, KeyKind, KeyedCombine, KeyedSchema};
use ripieno::{Element, Op};
use ripieno_kernels::Threads;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let argument = |position, default| std::env::args().nth(position).map_or(Ok(default), |text| text.parse::<usize>());
    let (row_count, key_count) = (argument(1, 25_000_000)?, argument(2, 1_000_000)?);
    let threads = Threads::new(argument(3, 1)?);
    let (add_rows, round_count) = (argument(4, 1_000_000)?, argument(5, 5)?);

    let mut state = 1u64;
    let keys: Vec<i64> = (0..row_count)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            ((u128::from(state ^ (state >> 29)) * key_count as u128) >> 64) as i64
        })
        .collect();
    let values: Vec<u8> = keys.iter().flat_map(|&key| (key as f64 * 0.1).to_ne_bytes()).collect();
    let mut expected = vec![0.0; key_count];
    keys.iter().for_each(|&key| expected[key as usize] += key as f64 * 0.1);

    let schema = KeyedSchema {
        keys: KeyKind::Int64,
        element: Element::F64,
        width: 1,
        combine: KeyedCombine::Op(Op::Sum),
        label: 0,
    };
    let (mut best, mut best_cpu) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..round_count {
        let (started, started_cpu) = (Instant::now(), cpu_seconds());
        let mut aggregation = Aggregation::new(schema, 2, None)?;
        for (keys, values) in keys.chunks(add_rows).zip(values.chunks(8 * add_rows)) {
            aggregation.add(KeyColumn::Int64(keys), values, None, &threads)?;
        }
        let mut parts = aggregation.seal(&threads)?;
        let seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - started_cpu;
        (best, best_cpu) = (best.min(seconds), best_cpu.min(cpu_seconds));
        println!("{:8.1} ms   {:8.1} ms of CPU time", 1e3 * seconds, 1e3 * cpu_seconds);
        for part in 0..parts.part_count() {
            let block = parts.take(part)?;
            let KeyColumn::Int64(keys) = block.view().keys else { panic!("expected integer keys") };
            for (&key, value) in keys.iter().zip(block.values.as_chunks().0) {
                assert_eq!(f64::from_ne_bytes(*value), expected[key as usize], "the sum of key {key}");
            }
        }
    }
    let per_row = 1e9 * best_cpu / row_count as f64;
    println!(
        "best {:8.1} ms {:8.1} ms, {per_row:.2} ns a row: {row_count} rows, {key_count} keys",
        1e3 * best,
        1e3 * best_cpu
    );
    Ok(())
}

/// Return the CPU time of this process so far, in seconds.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only to the given struct.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(done, 0, "every Linux has this clock");
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}
