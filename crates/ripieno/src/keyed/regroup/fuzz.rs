//! Fuzz targets for damaged blocks and announcements of a peer: decoding rejects them or returns valid data.

use super::super::block::{KeyedCombine, KeyedSchema, PartSize};
use super::super::columns::KeyKind;
use super::agreement::{AgreedSchema, Announcement};
use super::encoding::{ReceivedBlock, encoded_bytes};
use crate::{Element, Op};
use ripieno_fuzz::{Fuzz, FuzzAllocator};

#[global_allocator]
static ALLOCATOR: FuzzAllocator = FuzzAllocator;

const SCHEMAS: [KeyedSchema; 3] = [
    KeyedSchema { keys: KeyKind::Strings, element: Element::I16, width: 3, combine: KeyedCombine::Concat, label: 0 },
    KeyedSchema {
        keys: KeyKind::Strings,
        element: Element::F64,
        width: 1,
        combine: KeyedCombine::Op(Op::Sum),
        label: 0,
    },
    KeyedSchema { keys: KeyKind::Int64, element: Element::U8, width: 2, combine: KeyedCombine::Concat, label: 9 },
];

/// Split `bytes` into `N` words and the rest.
fn split<const N: usize>(bytes: &[u8]) -> Option<([u64; N], &[u8])> {
    let (front, rest) = bytes.split_at_checked(8 * N)?;
    let mut words = front.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    Some((std::array::from_fn(|_| words.next().expect("the front has `N` words")), rest))
}

#[test]
fn damaged_blocks_are_rejected_or_decoded() {
    let bytes = |sizes: [u64; 3], rest: &[u8]| [&sizes.map(u64::to_le_bytes).concat()[..], rest].concat();
    let lengths = [2u32, 0, 5].map(u32::to_ne_bytes).concat();
    let counts = [1u64, 3, 1].map(u64::to_ne_bytes).concat();
    let valid = [
        bytes([3, 7, 5], &[&lengths[..], b"abcdefg", &counts, &[1; 30]].concat()),
        bytes([3, 7, 3], &[&lengths[..], b"abcdefg", &[2; 24]].concat()),
        bytes([3, 24, 5], &[&[3; 24][..], &counts, &[4; 10]].concat()),
        bytes([0, 0, 0], &[]),
    ];
    Fuzz::new("regroup-block", env!("CARGO_MANIFEST_DIR"), valid).run(|bytes| {
        let Some(([keys, key_bytes, rows], block)) = split::<3>(bytes) else { return vec![] };
        let size = PartSize { keys, key_bytes, rows };
        let outcome = SCHEMAS.map(|schema| {
            // Like a regroup, decode only if the buffer has the announced size.
            let length = encoded_bytes(&schema, size)?;
            let mut block = usize::try_from(length).ok().and_then(|length| block.get(..length))?;
            let read = ReceivedBlock::read(&schema, &size, &mut block).map(|arrived| {
                let view = arrived.view();
                (view.keys.len(), view.values.len())
            });
            Some(read.map_err(|error| error.len()))
        });
        outcome.to_vec()
    });
}

#[test]
fn damaged_announcements_are_rejected_or_decoded() {
    let announced =
        Announcement { call: 7, balanced: true, schema: SCHEMAS[0], merge: KeyedCombine::Op(Op::Max), size_bytes: 40 };
    let bytes = |announced: Announcement| announced.words().map(u64::to_le_bytes).concat();
    let valid = [announced, Announcement { size_bytes: 0, schema: SCHEMAS[2], ..announced }].map(bytes);
    Fuzz::new("announcement", env!("CARGO_MANIFEST_DIR"), valid).run(|bytes| {
        let (words, _) = split(bytes)?;
        let read = Announcement::read(words)?;
        assert_eq!(read.words(), words, "an announcement has one encoding");
        Some(AgreedSchema::of(&[announced, read]).map(|_| ()).map_err(|error| error.to_string().len().min(90)))
    });
}
