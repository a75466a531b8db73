//! Key sets as bytes: the cheapest of several forms, and decoding that trusts nothing.
//!
//! A byte names the form: all keys of the range; a bit per key, of a dense set or of a listed one; or the number of
//! keys (8 bytes) and the offset of each from the start of the range in 4 or 8 bytes. Numbers are little-endian.

use super::bits::Bits;
use super::key_set::{KeySet, Keys, length};
use alloc::vec::Vec;
use core::ops::Range;

const ALL: u8 = 0;
const DENSE_BITS: u8 = 1;
const LISTED_BITS: u8 = 2;
const OFFSETS_32: u8 = 3;
const OFFSETS_64: u8 = 4;

/// Appends a set.
pub(super) fn write(set: &KeySet, into: &mut Vec<u8>) {
    match &set.keys {
        Keys::Dense(members) if members.count() == members.length() => into.push(ALL),
        Keys::Dense(members) => {
            into.push(DENSE_BITS);
            members.write(into);
        }
        Keys::Listed(keys) => write_list(&set.range, keys, into),
    }
}

fn write_list(range: &Range<u64>, keys: &[u64], into: &mut Vec<u8>) {
    let (length, count) = (length(range), keys.len() as u64);
    let offset_bytes = if length <= 1 << 32 { 4 } else { 8 };
    if bits_are_cheaper(length, 8 + offset_bytes * count) {
        let mut bits = Bits::none(length as usize);
        keys.iter().for_each(|key| bits.insert((key - range.start) as usize));
        into.push(LISTED_BITS);
        return bits.write(into);
    }
    into.push(if offset_bytes == 4 { OFFSETS_32 } else { OFFSETS_64 });
    into.extend_from_slice(&count.to_le_bytes());
    let offsets = keys.iter().map(|key| key - range.start);
    match offset_bytes {
        4 => into.extend(offsets.flat_map(|offset| (offset as u32).to_le_bytes())),
        _ => into.extend(offsets.flat_map(u64::to_le_bytes)),
    }
}

/// Whether a bit for each of `length` keys takes less than `list_bytes`; longer ranges than rows have numbers have no
/// such form.
fn bits_are_cheaper(length: u64, list_bytes: u64) -> bool {
    length <= u64::from(u32::MAX) && length.div_ceil(8) < list_bytes
}

/// Takes a set of keys of `range` from the front of `bytes`; says what is wrong where there is none.
pub(super) fn read(range: &Range<u64>, bytes: &mut &[u8]) -> Result<KeySet, &'static str> {
    let set = |keys| KeySet { range: range.clone(), keys };
    let form = take(bytes, 1)?[0];
    match form {
        ALL | DENSE_BITS | LISTED_BITS => {
            let length = u32::try_from(length(range)).map_err(|_| "too long a range for this form")? as usize;
            if form == ALL {
                return Ok(set(Keys::Dense(Bits::all(length))));
            }
            let bits = Bits::read(take(bytes, length.div_ceil(8))?, length).ok_or("a key outside the range")?;
            if form == DENSE_BITS {
                return Ok(set(Keys::Dense(bits)));
            }
            Ok(KeySet::of(range.clone(), bits.numbers().map(|number| range.start + number as u64).collect()))
        }
        OFFSETS_32 => listed(range, read_list(bytes, |offset| u32::from_le_bytes(offset).into())?),
        OFFSETS_64 => listed(range, read_list(bytes, u64::from_le_bytes)?),
        _ => Err("no form of key sets"),
    }
}

fn read_list<const BYTES: usize>(bytes: &mut &[u8], offset: fn([u8; BYTES]) -> u64) -> Result<Vec<u64>, &'static str> {
    let mut count = [0; 8];
    count.copy_from_slice(take(bytes, 8)?);
    let count = u32::try_from(u64::from_le_bytes(count)).map_err(|_| "more keys than there can be rows")?;
    let length_bytes = (count as usize).checked_mul(BYTES).ok_or("more keys than bytes")?;
    let (offsets, _) = take(bytes, length_bytes)?.as_chunks();
    Ok(offsets.iter().map(|&bytes| offset(bytes)).collect())
}

fn listed(range: &Range<u64>, mut offsets: Vec<u64>) -> Result<KeySet, &'static str> {
    if !offsets.is_sorted_by(|a, b| a < b) {
        return Err("keys that do not ascend");
    }
    if offsets.last().is_some_and(|&last| last >= length(range)) {
        return Err("a key outside the range");
    }
    offsets.iter_mut().for_each(|offset| *offset += range.start);
    Ok(KeySet::of(range.clone(), offsets))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or("too few bytes")?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use proptest::prelude::*;

    fn written(set: &KeySet) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(set, &mut bytes);
        bytes
    }

    #[test]
    fn the_cheapest_form_is_taken() {
        let form_and_size = |range: Range<u64>, step: usize| {
            let bytes = written(&KeySet::of(range.clone(), range.step_by(step).collect()));
            (bytes[0], bytes.len())
        };
        assert_eq!(form_and_size(5..3205, 1), (ALL, 1));
        assert_eq!(form_and_size(5..3205, 2), (LISTED_BITS, 1 + 400));
        assert_eq!(form_and_size(5..3205, 100), (OFFSETS_32, 9 + 4 * 32));
        assert_eq!(form_and_size(5..5 + (1 << 40), 1 << 36), (OFFSETS_64, 9 + 8 * 16));
        // What is written of a longer range could not be read.
        assert!(bits_are_cheaper(u64::from(u32::MAX), 1 << 30) && !bits_are_cheaper(1 << 32, 1 << 30));
    }

    #[test]
    fn what_is_not_a_set_is_told() {
        let list = |offsets: &[u32]| {
            let mut bytes = vec![OFFSETS_32];
            bytes.extend_from_slice(&(offsets.len() as u64).to_le_bytes());
            bytes.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
            bytes
        };
        let read = |bytes: &[u8]| read(&(10..20), &mut &*bytes);
        assert!(read(&list(&[0, 4, 9])).is_ok());
        assert_eq!(read(&list(&[0, 4, 10])), Err("a key outside the range"));
        assert_eq!(read(&list(&[4, 4])), Err("keys that do not ascend"));
        assert_eq!(read(&list(&[1, 2])[..16]), Err("too few bytes"));
        assert_eq!(
            read(&[OFFSETS_32, 255, 255, 255, 255, 255, 255, 255, 255]),
            Err("more keys than there can be rows")
        );
        assert_eq!(read(&[LISTED_BITS, 255, 4]), Err("a key outside the range"));
        assert_eq!(read(&[9]), Err("no form of key sets"));
        assert_eq!(read(&[]), Err("too few bytes"));
        assert_eq!(super::read(&(0..1 << 40), &mut &[ALL][..]), Err("too long a range for this form"));
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
                KeySet::union(&range, &[&set], forced).0
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(sets in prop::collection::vec(key_sets(), 0..4)) {
            let mut bytes = Vec::new();
            sets.iter().for_each(|set| write(set, &mut bytes));
            let mut rest = &bytes[..];
            for set in &sets {
                prop_assert_eq!(&read(&set.range, &mut rest).unwrap(), set);
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_a_set_or_are_refused(
            form in 0_u8..6,
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            length in 0_u64..200,
        ) {
            let bytes = [vec![form], bytes].concat();
            if let Ok(set) = read(&(7..7 + length), &mut &bytes[..]) {
                let members: Vec<u64> = set.members().collect();
                prop_assert!(members.is_sorted_by(|a, b| a < b));
                prop_assert!(members.iter().all(|key| set.range.contains(key)));
            }
        }

        #[test]
        fn a_changed_byte_is_a_set_or_is_refused(
            set in key_sets(),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut bytes = written(&set);
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(changed) = read(&set.range, &mut &bytes[..]) {
                prop_assert!(changed.members().all(|key| set.range.contains(&key)));
            }
        }
    }
}
