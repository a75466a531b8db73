//! Agreement between ranks before a regroup: every rank announces its call and the schema of its rows.
//!
//! From the announcements, every rank determines whether all ranks make the same call. A rank without rows adopts the
//! announced schema. Ranks detect a difference before any row is sent, and a difference does not end the job.
//!
//! Cost: 40 bytes to every rank, at the start of the message with the part sizes.

use super::super::block::{KeyedCombine, KeyedSchema};
use super::super::columns::KeyKind;
use crate::error::Error;
use ripieno_plan::Op;
use ripieno_run::Element;
use ripieno_run::membership::name_ranks;

/// The announcement of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    pub call: u64,
    pub balanced: bool,
    pub schema: KeyedSchema,
    pub merge: KeyedCombine,
    /// Encoded size of all rows of this rank, including the rows that stay here; 0 without rows.
    pub size_bytes: u64,
}

/// The schema of the rows, equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgreedSchema {
    pub schema: KeyedSchema,
    pub merge: KeyedCombine,
    /// Encoded size of all rows of all ranks.
    pub size_bytes: u64,
}

impl Announcement {
    /// Size of an announcement on the wire.
    pub const BYTES: usize = 40;

    pub fn words(&self) -> [u64; Self::BYTES / 8] {
        let KeyedSchema { keys, element, width, combine, label } = self.schema;
        let [keys, element, balanced] = [keys as u8, element as u8, u8::from(self.balanced)];
        let kinds = [keys, element, encode(combine), encode(self.merge), balanced, 0, 0, 0];
        [self.call, u64::from_le_bytes(kinds), width as u64, label, self.size_bytes]
    }

    /// Decode an announcement; `None` if the words are not a valid announcement.
    pub fn read(words: [u64; Self::BYTES / 8]) -> Option<Announcement> {
        let [call, kinds, width, label, size_bytes] = words;
        let [keys, element, combine, merge, balanced, 0, 0, 0] = kinds.to_le_bytes() else { return None };
        let schema = KeyedSchema {
            keys: *[KeyKind::Int64, KeyKind::Strings].get(keys as usize)?,
            element: *Element::ALL.get(element as usize)?,
            width: usize::try_from(width).ok()?,
            combine: decode(combine)?,
            label,
        };
        schema.check_width().ok()?;
        let balanced = [false, true].get(balanced as usize).copied()?;
        Some(Announcement { call, balanced, schema, merge: decode(merge)?, size_bytes })
    }

    /// Return the fields that must be equal on all ranks. A rank without rows has no schema to compare.
    fn compared(&self) -> (u64, bool, Option<(KeyedSchema, KeyedCombine)>) {
        (self.call, self.balanced, (self.size_bytes > 0).then_some((self.schema, self.merge)))
    }
}

impl AgreedSchema {
    /// Derive the agreed schema from all announcements, ordered by rank. If no rank has rows, the schema of rank 0
    /// applies.
    pub fn of(announced: &[Announcement]) -> Result<AgreedSchema, Error> {
        let first = announced.iter().find(|announced| announced.size_bytes > 0).unwrap_or(&announced[0]);
        let matches = |announced: &&Announcement| {
            (announced.call, announced.balanced) == (first.call, first.balanced)
                && announced.compared().2.is_none_or(|rows| rows == (first.schema, first.merge))
        };
        if !announced.iter().all(|announced| matches(&announced)) {
            return Err(Error::RowsDiffer { description: describe(announced) });
        }
        let sum = |sum: u64, announced: &Announcement| sum.checked_add(announced.size_bytes);
        let size_bytes = announced
            .iter()
            .try_fold(0, sum)
            .ok_or_else(|| Error::Malformed { cause: "the announced sizes of all ranks overflow".to_string() })?;
        Ok(AgreedSchema { schema: first.schema, merge: first.merge, size_bytes })
    }
}

/// Describe the announcements, with the ranks that made each.
fn describe(announced: &[Announcement]) -> String {
    let mut groups: Vec<(&Announcement, Vec<usize>)> = Vec::new();
    for (rank, announced) in announced.iter().enumerate() {
        match groups.iter_mut().find(|(known, _)| known.compared() == announced.compared()) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((announced, vec![rank])),
        }
    }
    let is_one_call = announced.iter().all(|other| other.call == announced[0].call);
    let group = |(announced, ranks): &(&Announcement, Vec<usize>)| {
        let call = if is_one_call { String::new() } else { format!("call #{:016x} of ", announced.call) };
        let balanced = if announced.balanced { ", balanced" } else { "" };
        format!("{}: {call}{}{balanced}", name_ranks(ranks), rows(announced))
    };
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

fn rows(announced: &Announcement) -> String {
    let Some((KeyedSchema { keys, element, width, combine, label }, merge)) = announced.compared().2 else {
        return "no rows".to_string();
    };
    let [combine, merge] = [combine, merge].map(|combine| combine.op().map_or("concat", Op::name));
    let label = if label == 0 { String::new() } else { format!(", label {label}") };
    format!("{} keys, rows of {} × {width}, {combine}, merged by {merge}{label}", keys.name(), element.name())
}

fn encode(combine: KeyedCombine) -> u8 {
    combine.op().map_or(0, |op| op as u8 + 1)
}

fn decode(number: u8) -> Option<KeyedCombine> {
    match number.checked_sub(1) {
        None => Some(KeyedCombine::Concat),
        Some(op) => Op::ALL.get(op as usize).copied().map(KeyedCombine::Op),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: KeyedSchema = KeyedSchema {
        keys: KeyKind::Strings,
        element: Element::F32,
        width: 3,
        combine: KeyedCombine::Op(Op::Max),
        label: 9,
    };
    const ANNOUNCED: Announcement =
        Announcement { call: 7, balanced: true, schema: SCHEMA, merge: KeyedCombine::Concat, size_bytes: 40 };

    #[test]
    fn announcements_round_trip_and_invalid_ones_are_rejected() {
        let ops = Op::ALL.into_iter().map(KeyedCombine::Op).chain([KeyedCombine::Concat]);
        for (combine, balanced) in ops.flat_map(|combine| [(combine, false), (combine, true)]) {
            let announced =
                Announcement { balanced, merge: combine, schema: KeyedSchema { combine, ..SCHEMA }, ..ANNOUNCED };
            assert_eq!(Announcement::read(announced.words()), Some(announced));
        }
        for byte in 0..8 {
            let mut words = ANNOUNCED.words();
            words[1] |= 0x80 << (8 * byte);
            assert_eq!(Announcement::read(words), None, "byte {byte}");
        }
        let mut words = ANNOUNCED.words();
        words[2] = u64::MAX;
        assert_eq!(Announcement::read(words), None);
    }

    #[test]
    fn ranks_without_rows_adopt_the_form_of_the_others_or_of_rank_0() {
        let other = KeyedSchema { keys: KeyKind::Int64, width: 1, label: 0, ..SCHEMA };
        let none = Announcement { schema: other, merge: KeyedCombine::Op(Op::Sum), size_bytes: 0, ..ANNOUNCED };
        let agreed = AgreedSchema { schema: SCHEMA, merge: KeyedCombine::Concat, size_bytes: 80 };
        assert_eq!(AgreedSchema::of(&[none, ANNOUNCED, none, ANNOUNCED]), Ok(agreed));
        let nothing = Announcement { size_bytes: 0, ..ANNOUNCED };
        let agreed = AgreedSchema { schema: other, merge: KeyedCombine::Op(Op::Sum), size_bytes: 0 };
        assert_eq!(AgreedSchema::of(&[none, nothing]), Ok(agreed));
    }

    #[test]
    fn ranks_that_differ_are_reported_with_their_values() {
        let with = |schema| Announcement { schema, ..ANNOUNCED };
        let cases = [
            (
                with(KeyedSchema { keys: KeyKind::Int64, ..SCHEMA }),
                "int64 keys, rows of float32 × 3, max, merged by concat",
            ),
            (with(KeyedSchema { element: Element::I8, ..SCHEMA }), "rows of int8 × 3"),
            (with(KeyedSchema { width: 4, ..SCHEMA }), "float32 × 4"),
            (with(KeyedSchema { combine: KeyedCombine::Concat, ..SCHEMA }), "concat, merged by concat"),
            (with(KeyedSchema { label: 8, ..SCHEMA }), "label 8"),
            (Announcement { merge: KeyedCombine::Op(Op::Sum), ..ANNOUNCED }, "merged by sum"),
            (Announcement { balanced: false, ..ANNOUNCED }, "label 9"),
            (Announcement { call: 8, ..ANNOUNCED }, "call #0000000000000008 of string keys"),
            (Announcement { call: 8, size_bytes: 0, ..ANNOUNCED }, "call #0000000000000008 of no rows"),
        ];
        for (other, named) in cases {
            let Err(Error::RowsDiffer { description }) = AgreedSchema::of(&[ANNOUNCED, ANNOUNCED, other, ANNOUNCED])
            else {
                panic!("{other:?}")
            };
            let (most, last) = description.split_once("; ").unwrap();
            assert!(most.starts_with("ranks 0-1, 3: ") && last.starts_with("rank 2: "), "{description}");
            assert!(last.contains(named), "{description}");
        }
    }

    #[test]
    fn announced_sizes_that_overflow_are_rejected() {
        let all = Announcement { size_bytes: u64::MAX, ..ANNOUNCED };
        assert!(matches!(AgreedSchema::of(&[all, ANNOUNCED]), Err(Error::Malformed { .. })));
    }
}
