//! Encoding of key sets: the smallest of several forms, and a decoder that validates all input.
//!
//! The first byte selects one of three forms. A set of all keys of the range has no further bytes. A dense or listed
//! set may be encoded as one bit per key. The third form is the number of keys (8 bytes), followed by the offset of
//! each key from the start of the range in 4 or 8 bytes. Numbers are little-endian.

use super::bits::Bits;
use super::key_set::{KeyForm, KeySet, is_all, length};
use super::team::{WorkTeam, cut, each, ranges};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

const ALL: u8 = 0;
const DENSE_BITS: u8 = 1;
const LISTED_BITS: u8 = 2;
const OFFSETS_32: u8 = 3;
const OFFSETS_64: u8 = 4;

/// Estimated cost of writing or reading an offset, in operations.
const OFFSET_OPERATIONS: usize = 2;

/// Append the keys of a set in `range`, a part of its own range.
pub(super) fn write(set: &KeySet, range: &Range<u64>, into: &mut Vec<u8>, team: &dyn WorkTeam) {
    let rows = set.rows_in(range);
    match &set.keys {
        KeyForm::Dense(members) => {
            let part = members.part(rows);
            let is_all = part.count() == part.length();
            into.push(if is_all { ALL } else { DENSE_BITS });
            if !is_all {
                part.write(into);
            }
        }
        KeyForm::Listed(keys) => write_list(range, &keys[rows], into, team),
    }
}

fn write_list(range: &Range<u64>, keys: &[u64], into: &mut Vec<u8>, team: &dyn WorkTeam) {
    if is_all(range, keys.len()) {
        return into.push(ALL);
    }
    let (length, count) = (length(range), keys.len() as u64);
    let offset_bytes = if length <= 1 << 32 { 4 } else { 8 };
    if bits_are_cheaper(length, 8 + offset_bytes * count) {
        into.push(LISTED_BITS);
        return Bits::of(length as usize, &[keys], range.start, team).write(into);
    }
    into.push(if offset_bytes == 4 { OFFSETS_32 } else { OFFSETS_64 });
    into.extend_from_slice(&count.to_le_bytes());
    match offset_bytes {
        4 => write_offsets(keys, into, team, |key| ((key - range.start) as u32).to_le_bytes()),
        _ => write_offsets(keys, into, team, |key| (key - range.start).to_le_bytes()),
    }
}

fn write_offsets<const BYTES: usize>(
    keys: &[u64],
    into: &mut Vec<u8>,
    team: &dyn WorkTeam,
    offset: impl Fn(u64) -> [u8; BYTES] + Sync,
) {
    let start = into.len();
    into.resize(start + BYTES * keys.len(), 0);
    let (targets, _) = into[start..].as_chunks_mut();
    let operations = OFFSET_OPERATIONS * keys.len();
    let pieces = ranges(team, operations, keys.len(), 1);
    let pieces = cut(targets, pieces.iter().map(Range::len)).into_iter().zip(pieces).collect();
    each(team, operations, pieces, |(targets, piece): (&mut [[u8; BYTES]], Range<usize>)| {
        targets.iter_mut().zip(&keys[piece]).for_each(|(target, &key)| *target = offset(key));
    });
}

/// Whether a bit for each of `length` keys takes less than `list_bytes`. Ranges too long for 32-bit row numbers have no
/// bit form.
fn bits_are_cheaper(length: u64, list_bytes: u64) -> bool {
    length <= u64::from(u32::MAX) && length.div_ceil(8) < list_bytes
}

/// Decode a set of keys of `range` from the front of `bytes`. The error is the reason as text.
pub(super) fn read(range: &Range<u64>, bytes: &mut &[u8], team: &dyn WorkTeam) -> Result<KeySet, &'static str> {
    let set = |keys| KeySet { range: range.clone(), keys };
    let form = take(bytes, 1)?[0];
    match form {
        ALL | DENSE_BITS | LISTED_BITS => {
            let length = u32::try_from(length(range)).map_err(|_| "the range is too long for this form")? as usize;
            if form == ALL {
                return Ok(set(KeyForm::Dense(Bits::all(length))));
            }
            let bits = Bits::read(take(bytes, length.div_ceil(8))?, length).ok_or("a key outside the range")?;
            if form == DENSE_BITS {
                return Ok(set(KeyForm::Dense(bits)));
            }
            Ok(KeySet::of(range.clone(), bits.list(range.start, team)))
        }
        OFFSETS_32 => read_list(range, bytes, team, |offset| u32::from_le_bytes(offset).into()),
        OFFSETS_64 => read_list(range, bytes, team, u64::from_le_bytes),
        _ => Err("unknown form of key sets"),
    }
}

fn read_list<const BYTES: usize>(
    range: &Range<u64>,
    bytes: &mut &[u8],
    team: &dyn WorkTeam,
    offset: fn([u8; BYTES]) -> u64,
) -> Result<KeySet, &'static str> {
    let mut count = [0; 8];
    count.copy_from_slice(take(bytes, 8)?);
    let count = u32::try_from(u64::from_le_bytes(count)).map_err(|_| "more keys than there can be rows")?;
    let length_bytes = (count as usize).checked_mul(BYTES).ok_or("more keys than bytes")?;
    let (offsets, _) = take(bytes, length_bytes)?.as_chunks();
    let length = length(range);
    if offsets.last().is_some_and(|&last| offset(last) >= length) {
        return Err("a key outside the range");
    }
    let mut keys = vec![0; offsets.len()];
    let operations = OFFSET_OPERATIONS * offsets.len();
    let pieces = ranges(team, operations, offsets.len(), 1);
    let pieces = cut(&mut keys, pieces.iter().map(Range::len)).into_iter().zip(pieces).collect();
    let ascending = each(team, operations, pieces, |(keys, piece): (&mut [u64], Range<usize>)| {
        // Lower bound for the next offset.
        let mut lower = piece.start.checked_sub(1).map_or(0, |before| offset(offsets[before]).wrapping_add(1));
        let mut are_ascending = true;
        for (key, &bytes) in keys.iter_mut().zip(&offsets[piece]) {
            let offset = offset(bytes);
            are_ascending &= offset >= lower && offset < length;
            lower = offset.wrapping_add(1);
            *key = range.start.wrapping_add(offset);
        }
        are_ascending
    });
    match ascending.into_iter().all(|are_ascending| are_ascending) {
        true => Ok(KeySet::of(range.clone(), keys)),
        false => Err("keys that do not ascend"),
    }
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or("too few bytes")?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::super::team::SingleThread;
    use super::super::team::tests::ReverseTeam;
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn written(set: &KeySet) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(set, &set.range, &mut bytes, &SingleThread);
        bytes
    }

    #[test]
    fn the_smallest_form_is_selected() {
        let form_and_size = |range: Range<u64>, step: usize| {
            let bytes = written(&KeySet::of(range.clone(), range.step_by(step).collect()));
            (bytes[0], bytes.len())
        };
        assert_eq!(form_and_size(5..3205, 1), (ALL, 1));
        assert_eq!(form_and_size(5..3205, 2), (LISTED_BITS, 1 + 400));
        assert_eq!(form_and_size(5..3205, 100), (OFFSETS_32, 9 + 4 * 32));
        assert_eq!(form_and_size(5..5 + (1 << 40), 1 << 36), (OFFSETS_64, 9 + 8 * 16));
        // The bit form of a longer range could not be decoded.
        assert!(bits_are_cheaper(u64::from(u32::MAX), 1 << 30) && !bits_are_cheaper(1 << 32, 1 << 30));
    }

    #[test]
    fn an_invalid_encoding_is_reported() {
        let list = |offsets: &[u32]| {
            let mut bytes = vec![OFFSETS_32];
            bytes.extend_from_slice(&(offsets.len() as u64).to_le_bytes());
            bytes.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
            bytes
        };
        let read = |bytes: &[u8]| read(&(10..20), &mut &*bytes, &ReverseTeam(2));
        assert!(read(&list(&[0, 4, 9])).is_ok());
        assert_eq!(read(&list(&[0, 4, 10])), Err("a key outside the range"));
        assert_eq!(read(&list(&[4, 4])), Err("keys that do not ascend"));
        assert_eq!(read(&list(&[1, 2])[..16]), Err("too few bytes"));
        assert_eq!(
            read(&[OFFSETS_32, 255, 255, 255, 255, 255, 255, 255, 255]),
            Err("more keys than there can be rows")
        );
        assert_eq!(read(&[LISTED_BITS, 255, 4]), Err("a key outside the range"));
        assert_eq!(read(&[9]), Err("unknown form of key sets"));
        assert_eq!(read(&[]), Err("too few bytes"));
        assert_eq!(
            super::read(&(0..1 << 40), &mut &[ALL][..], &SingleThread),
            Err("the range is too long for this form")
        );
    }

    fn key_sets() -> impl Strategy<Value = KeySet> {
        let ranges =
            (0_u64..1000, prop_oneof![0_u64..300, Just(1 << 40)]).prop_map(|(start, length)| start..start + length);
        ranges.prop_flat_map(|range| {
            let offsets = prop::collection::btree_set(0..(range.end - range.start).max(1), 0..100);
            (Just(range), offsets, any::<bool>()).prop_map(|(range, offsets, is_dense): (_, BTreeSet<u64>, _)| {
                let keys = offsets.into_iter().map(|offset| range.start + offset).filter(|key| range.contains(key));
                let set = KeySet::of(range.clone(), keys.collect());
                let forced = if is_dense && range.end < 2000 { -1.0 } else { 1.0 };
                KeySet::union(&range, &[&set], forced, &SingleThread).0
            })
        })
    }

    proptest! {
        #[test]
        fn the_encoding_round_trips(sets in prop::collection::vec(key_sets(), 0..4), size in 1..5_usize) {
            let (mut bytes, mut by_one_thread) = (Vec::new(), Vec::new());
            sets.iter().for_each(|set| write(set, &set.range, &mut bytes, &ReverseTeam(size)));
            sets.iter().for_each(|set| write(set, &set.range, &mut by_one_thread, &SingleThread));
            prop_assert_eq!(&bytes, &by_one_thread);
            let mut rest = &bytes[..];
            for set in &sets {
                prop_assert_eq!(&read(&set.range, &mut rest, &ReverseTeam(size)).unwrap(), set);
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn a_part_is_encoded_like_a_separate_set(set in key_sets(), cuts in [0.0..1.0_f64, 0.0..1.0]) {
            let [a, b] = cuts.map(|cut| set.range.start + (length(&set.range) as f64 * cut) as u64);
            let part = a.min(b)..a.max(b);
            let mut bytes = Vec::new();
            write(&set, &part, &mut bytes, &SingleThread);
            prop_assert_eq!(read(&part, &mut &bytes[..], &SingleThread).unwrap(), set.part(&part));
        }

        #[test]
        fn arbitrary_bytes_decode_to_a_set_or_are_rejected(
            form in 0_u8..6,
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            length in 0_u64..200,
        ) {
            let bytes = [vec![form], bytes].concat();
            if let Ok(set) = read(&(7..7 + length), &mut &bytes[..], &ReverseTeam(3)) {
                let members: Vec<u64> = set.members().collect();
                prop_assert!(members.is_sorted_by(|a, b| a < b));
                prop_assert!(members.iter().all(|key| set.range.contains(key)));
            }
        }

        #[test]
        fn a_changed_byte_decodes_to_a_set_or_is_rejected(
            set in key_sets(),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut bytes = written(&set);
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(changed) = read(&set.range, &mut &bytes[..], &ReverseTeam(2)) {
                prop_assert!(changed.members().all(|key| set.range.contains(&key)));
            }
        }
    }
}
