//! Times the flight recorder's overhead per collective, in nanoseconds per record.
//!
//! `cargo run --release -p ripieno-run --example record_cost [records per batch]`
//! The result is the best of many batches, because the machine may be busy.
//! To count instructions, run it under `perf stat -e instructions:u`.

use ripieno_plan::{Collective, Op};
use ripieno_run::recorder::{CollectiveOutcome, CollectiveRecord, Recorder};
use ripieno_run::{Call, CallKind, Element, Header};
use std::hint::black_box;
use std::time::{Duration, Instant};

const BATCH_COUNT: usize = 200;

fn main() {
    let per_batch: u64 = match std::env::args().nth(1) {
        Some(text) => text.parse().expect("the number of records per batch"),
        None => 100_000,
    };
    let mut recorder = Recorder::default();
    let record = sample_record();
    let plain = best(per_batch, |sequence| record_one(&mut recorder, &record, sequence, None));
    let start = Instant::now();
    let clocked = best(per_batch, |sequence| record_one(&mut recorder, &record, sequence, Some(start)));
    println!("{plain:.2} ns per record without times, {clocked:.2} ns with two clock reads");
}

fn record_one(recorder: &mut Recorder, record: &CollectiveRecord, sequence: u64, clock: Option<Instant>) {
    let now = || clock.expect("a clock is given").elapsed();
    let ticket = recorder.begin(black_box(record), sequence, clock.map(|_| now()));
    recorder.end(ticket, CollectiveOutcome::Done, now);
}

fn sample_record() -> CollectiveRecord {
    let (collective, op) = (Collective::Allreduce, Some(Op::Sum));
    let kind = CallKind::Catalogued { collective, algorithm: 1, op, root: 0, element_count: 1 };
    let header = Header { communicator: 0, sequence: 0, call: Call { kind, element: Element::F64, signature: 0 } };
    CollectiveRecord::of(&header, 8, 1)
}

/// Return the nanoseconds per call of `record`, in the fastest batch.
fn best(per_batch: u64, mut record: impl FnMut(u64)) -> f64 {
    let mut batch = |_| {
        let start = Instant::now();
        (0..per_batch).for_each(&mut record);
        start.elapsed()
    };
    let fastest: Duration = (0..BATCH_COUNT).map(&mut batch).min().expect("there is a batch");
    fastest.as_secs_f64() * 1e9 / per_batch as f64
}
