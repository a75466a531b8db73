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
fn a_panic_deep_in_a_reader_is_found_and_its_input_is_saved() {
    let panicking = |bytes: &[u8]| match read(bytes) {
        Ok(found) if found.first() == Some(&11) && found.len() > 2 => panic!("unexpected element"),
        found => found.map(|found| (found.len(), found.first().copied())),
    };
    let _ = std::fs::remove_dir_all(folder("panicking"));
    assert!(catch_unwind(|| fuzz("panicking").run(panicking)).is_err());
    let saved = std::fs::read(format!("{}/tests/corpus/panicking/found", folder("panicking"))).unwrap();
    assert!(catch_unwind(|| panicking(&saved)).is_err());
}

#[test]
fn a_reader_that_trusts_a_length_is_found() {
    let trusting = |bytes: &[u8]| {
        let length = bytes.first_chunk().map_or(0, |length| u16::from_le_bytes(*length));
        let _ = std::fs::remove_dir_all(folder("trusting"));
        Vec::<u8>::with_capacity(length.into()).capacity() > 3
    };
    assert!(catch_unwind(|| fuzz("trusting").allowing(|bytes| 16384 + bytes).run(trusting)).is_err());
}
