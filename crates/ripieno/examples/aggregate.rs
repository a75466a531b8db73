//! Times keyed aggregation: rows of one float64 under random integers are summed by key.
//!
//!     aggregate [ROWS [KEYS [THREADS [ADD_ROWS [ROUNDS]]]]]        25000000 1000000 1 1000000 5, unless told otherwise
//!
//! Prints the best round, and of how many rows and keys; the sums are compared with those of a plain array.

use ripieno::keyed::{Aggregation, Combine, Form, KeyKind, Keys};
use ripieno::{Element, Op};
use ripieno_kernels::Threads;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let argument = |place, default| std::env::args().nth(place).map_or(Ok(default), |text| text.parse::<usize>());
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

    let form = Form { keys: KeyKind::Int64, element: Element::F64, width: 1, combine: Combine::Op(Op::Sum) };
    let mut best = f64::INFINITY;
    for _ in 0..round_count {
        let started = Instant::now();
        let mut aggregation = Aggregation::new(form, 2, None)?;
        for (keys, values) in keys.chunks(add_rows).zip(values.chunks(8 * add_rows)) {
            aggregation.add(Keys::Int64(keys), values, None, &threads)?;
        }
        let mut parts = aggregation.seal(&threads)?;
        let seconds = started.elapsed().as_secs_f64();
        best = best.min(seconds);
        println!("{:8.1} ms   {:6.2} ns/row", 1e3 * seconds, 1e9 * seconds / row_count as f64);
        for part in 0..parts.part_count() {
            let block = parts.take(part)?;
            let Keys::Int64(keys) = block.view().keys else { panic!("keys of another kind") };
            for (&key, value) in keys.iter().zip(block.values.as_chunks().0) {
                assert_eq!(f64::from_ne_bytes(*value), expected[key as usize], "the sum of key {key}");
            }
        }
    }
    println!("best {:.1} ms: {row_count} rows, {key_count} keys, {} threads", 1e3 * best, threads.count());
    Ok(())
}
