//! Times row operations by a row map: seconds per byte to combine rows and to gather rows, the best of many passes.
//! The constant `GAMMA_S_PER_BYTE` of the design of sparse reductions is derived from these times.
//!
//!     cargo run --release -p ripieno-run --example row_cost

use ripieno_plan::Op;
use ripieno_run::Element;
use ripieno_run::reduction::Reduction;
use ripieno_run::rows::gather_rows;
use std::hint::black_box;
use std::time::Instant;

const ROW_COUNTS: [usize; 3] = [10_000, 100_000, 1_000_000];
const ROW_BYTES: [usize; 3] = [4, 8, 64];
const PASS_COUNT: usize = 50;

fn main() {
    let sum = Reduction::of(Element::F32, Op::Sum).expect("a sum of floats");
    for row_bytes in ROW_BYTES {
        for row_count in ROW_COUNTS {
            // The map names two of three rows of the union.
            let numbers: Vec<u32> = (0..row_count as u32).map(|row| row + row / 2).collect();
            let mut union = vec![0u8; row_count * 3 / 2 * row_bytes + row_bytes];
            let mut packed = vec![0u8; row_count * row_bytes];
            let per_byte = |seconds: f64| seconds / packed.len() as f64 * 1e9;
            let combine = per_byte(best(|| (sum.combine_rows)(black_box(&mut union), &packed, &numbers, row_bytes)));
            let bytes = packed.len() as f64;
            let gather = best(|| gather_rows(black_box(&mut packed), &union, &numbers, row_bytes)) / bytes * 1e9;
            println!(
                "{row_count:>8} rows of {row_bytes:>2} bytes: combine {combine:.3} ns, gather {gather:.3} ns per byte"
            );
        }
    }
}

/// Return the time of the fastest pass, in seconds.
fn best(mut pass: impl FnMut()) -> f64 {
    let mut timed = || {
        let start = Instant::now();
        pass();
        start.elapsed().as_secs_f64()
    };
    (0..PASS_COUNT).map(|_| timed()).fold(f64::INFINITY, f64::min)
}
