//! Tests of the fuzzer itself: it detects known faults.

use ripieno_fuzz::{Fuzz, FuzzAllocator};
use std::panic::catch_unwind;

#[global_allocator]
static ALLOCATOR: FuzzAllocator = FuzzAllocator;

fn fuzz(name: &'static str) -> Fuzz {
    Fuzz::new(name, &folder(name), [vec![2, 0, 10, 20], vec![0, 0]])
}

/// Return a temporary corpus folder.
fn folder(name: &str) -> String {
    format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"))
}

/// Read a two-byte length followed by that number of bytes.
fn read(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (length, rest) = bytes.split_first_chunk().ok_or("no length")?;
    rest.get(..u16::from_le_bytes(*length).into()).map(<[u8]>::to_vec).ok_or("too few bytes")
}

#[test]
fn a_careful_reader_passes() {
    fuzz("careful").run(|bytes| read(bytes).map(|found| found.len()));
}

#[test]
fn a_reader_that_panics_far_inside_is_found_and_its_input_is_kept() {
    let careless = |bytes: &[u8]| match read(bytes) {
        Ok(found) if found.first() == Some(&11) && found.len() > 2 => panic!("it was three"),
        found => found.map(|found| (found.len(), found.first().copied())),
    };
    let _ = std::fs::remove_dir_all(folder("careless"));
    assert!(catch_unwind(|| fuzz("careless").run(careless)).is_err());
    let kept = std::fs::read(format!("{}/tests/corpus/careless/found", folder("careless"))).unwrap();
    assert!(catch_unwind(|| careless(&kept)).is_err());
}

#[test]
fn a_reader_that_trusts_a_length_is_found() {
    let believing = |bytes: &[u8]| {
        let length = bytes.first_chunk().map_or(0, |length| u16::from_le_bytes(*length));
        let _ = std::fs::remove_dir_all(folder("believing"));
        Vec::<u8>::with_capacity(length.into()).capacity() > 3
    };
    assert!(catch_unwind(|| fuzz("believing").allowing(|bytes| 16384 + bytes).run(believing)).is_err());
}
