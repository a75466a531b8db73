//! Calls: what a rank asked for, as the 32 bytes that travel ahead of its data on every link.
//!
//! Two ranks that meet on a link compare their calls before a byte of data is used, so a mismatch is an error that says
//! who called what, never garbage.

use ripieno_plan::{Algorithm, Collective, Op};

/// Bytes of an encoded [`Header`].
pub const HEADER_BYTES: usize = 32;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Element {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

/// What a rank asked for. Ranks that run one collective together have equal calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Which collective.
    pub collective: Collective,
    /// Index of the algorithm in the list of its collective; of a regroup a [`RegroupWishes`].
    pub algorithm: u8,
    /// Type of the elements.
    pub element: Element,
    /// How elements combine, where they do.
    pub op: Option<Op>,
    /// The root, where there is one; the receiver for point-to-point, the step of a regroup.
    pub root: u32,
    /// Elements in all, of a sparse reduction or a regroup those of a row; 0 where every rank has another count (alltoall).
    pub element_count: u64,
    /// A hash of the counts per rank, where they are given, and of the order, unless it is the default; of a sparse
    /// reduction the number of its configuration; of a regroup a hash of its other options; else 0.
    pub counts_hash: u32,
}

/// What is the same on every rank of a regroup, beside what the other fields of its call have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegroupWishes {
    /// Keys are strings, and not integers.
    pub strings: bool,
    /// Parts are dealt to ranks by their size.
    pub balanced: bool,
    /// How rows of equal keys from different ranks combine, if they do.
    pub merge: Option<Op>,
}

/// What travels ahead of the data of one collective on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose collective; 0 is the communicator of all ranks.
    pub communicator: u32,
    /// The how-manieth collective of this communicator; of a message, the how-manieth from its sender to its receiver.
    pub sequence: u64,
    /// What the sender asked for.
    pub call: Call,
}

/// One collective of one communicator, whatever each rank called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// Whose collective; 0 is the communicator of all ranks.
    pub communicator: u32,
    /// The how-manieth.
    pub sequence: u64,
}

impl Call {
    /// Whether every rank takes part, so that all calls under one sequence number are equal; a message concerns two.
    pub fn concerns_all(&self) -> bool {
        self.collective != Collective::PointToPoint
    }
}

impl RegroupWishes {
    /// The number in the place of an algorithm.
    pub fn encode(self) -> u8 {
        let merge = self.merge.map_or(0, |op| op as u8 + 1);
        u8::from(self.strings) | u8::from(self.balanced) << 1 | merge << 2
    }

    /// What such a number says; a merge that is not known is none.
    fn decode(number: u8) -> RegroupWishes {
        let merge = (number >> 2).checked_sub(1).and_then(|op| Op::ALL.get(op as usize).copied());
        RegroupWishes { strings: number & 1 != 0, balanced: number & 2 != 0, merge }
    }
}

impl Element {
    /// Every type, in the order of the numbers on the wire.
    pub const ALL: [Element; 12] = [
        Element::I8,
        Element::I16,
        Element::I32,
        Element::I64,
        Element::U8,
        Element::U16,
        Element::U32,
        Element::U64,
        Element::F16,
        Element::Bf16,
        Element::F32,
        Element::F64,
    ];

    /// Size of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            Element::I8 | Element::U8 => 1,
            Element::I16 | Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    /// Whether the type has a fraction, so that bitwise operations have no meaning on it.
    pub fn is_float(self) -> bool {
        matches!(self, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }

    /// The name that NumPy's users know.
    pub fn name(self) -> &'static str {
        match self {
            Element::I8 => "int8",
            Element::I16 => "int16",
            Element::I32 => "int32",
            Element::I64 => "int64",
            Element::U8 => "uint8",
            Element::U16 => "uint16",
            Element::U32 => "uint32",
            Element::U64 => "uint64",
            Element::F16 => "float16",
            Element::Bf16 => "bfloat16",
            Element::F32 => "float32",
            Element::F64 => "float64",
        }
    }
}

/// The number on the wire that says "no operation".
const NO_OP: u8 = u8::MAX;

impl Header {
    /// Which collective it belongs to.
    pub fn turn(&self) -> Turn {
        Turn { communicator: self.communicator, sequence: self.sequence }
    }

    /// The bytes that travel.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Call { collective, algorithm, element, op, root, element_count, counts_hash } = self.call;
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&element_count.to_le_bytes());
        bytes[16..20].copy_from_slice(&counts_hash.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.communicator.to_le_bytes());
        bytes[24..28].copy_from_slice(&root.to_le_bytes());
        bytes[28..32].copy_from_slice(&[collective as u8, algorithm, element as u8, op.map_or(NO_OP, |op| op as u8)]);
        bytes
    }

    /// What travelled; `None` if the bytes are no header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let [collective, algorithm, element, op] = bytes[28..32].try_into().expect("four bytes");
        let op = match op {
            NO_OP => None,
            number => Some(*Op::ALL.get(number as usize)?),
        };
        Some(Header {
            communicator: half(20),
            sequence: word(0),
            call: Call {
                collective: *Collective::ALL.get(collective as usize)?,
                algorithm,
                element: *Element::ALL.get(element as usize)?,
                op,
                root: half(24),
                element_count: word(8),
                counts_hash: half(16),
            },
        })
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.collective == Collective::Barrier && self.algorithm == 0 {
            return f.write_str("barrier");
        }
        if self.collective == Collective::SparseReduce {
            return self.describe_sparse(f);
        }
        if self.collective == Collective::Regroup {
            return self.describe_regroup(f);
        }
        write!(f, "{}({} × {}", self.collective.name(), self.element.name(), self.element_count)?;
        if let Some(op) = self.op {
            write!(f, ", {}", op.name())?;
        }
        match self.collective {
            Collective::PointToPoint => write!(f, ", to {}", self.root)?,
            Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter => {
                write!(f, ", root {}", self.root)?;
            }
            _ => {}
        }
        if self.counts_hash != 0 {
            let what = match self.collective {
                Collective::Allgather | Collective::ReduceScatter | Collective::Gather | Collective::Scatter => {
                    "counts"
                }
                _ => "order",
            };
            write!(f, ", {what} #{:08x}", self.counts_hash)?;
        }
        match Algorithm::by_index(self.collective, self.algorithm) {
            Some(algorithm) => write!(f, ", {})", algorithm.name),
            None => write!(f, ", unknown algorithm {})", self.algorithm),
        }
    }
}

impl Call {
    fn describe_sparse(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Call { collective, element, op, element_count, counts_hash, .. } = self;
        let op = op.map_or("no op", Op::name);
        let (collective, element) = (collective.name(), element.name());
        write!(f, "{collective}(rows of {element} × {element_count}, {op}, configuration {counts_hash})")
    }

    fn describe_regroup(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Call { collective, algorithm, element, op, root, element_count, counts_hash } = self;
        let RegroupWishes { strings, balanced, merge } = RegroupWishes::decode(*algorithm);
        let keys = if strings { "string" } else { "int64" };
        let [op, merge] = [*op, merge].map(|op| op.map_or("concat", Op::name));
        let balanced = if balanced { ", balanced" } else { "" };
        let (collective, element) = (collective.name(), element.name());
        write!(
            f,
            "{collective}({keys} keys, rows of {element} × {element_count}, {op}, merged by {merge}{balanced}, step {root}, \
             options #{counts_hash:08x})"
        )
    }
}

impl std::fmt::Display for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.call.concerns_all() { "collective" } else { "message" };
        write!(f, "{} as its {what} {}", self.call, self.sequence)?;
        of_communicator(f, self.communicator)
    }
}

impl std::fmt::Display for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "collective {}", self.sequence)?;
        of_communicator(f, self.communicator)
    }
}

/// Names a communicator that is not that of all ranks.
fn of_communicator(f: &mut std::fmt::Formatter<'_>, communicator: u32) -> std::fmt::Result {
    if communicator == 0 { Ok(()) } else { write!(f, " of communicator {communicator}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_comes_back_as_it_left() {
        for collective in Collective::ALL {
            for element in Element::ALL {
                for op in Op::ALL.into_iter().map(Some).chain([None]) {
                    let call =
                        Call { collective, algorithm: 3, element, op, root: 7, element_count: 1 << 40, counts_hash: 5 };
                    let header = Header { communicator: 1 << 31, sequence: u64::MAX - 1, call };
                    assert_eq!(Header::decode(&header.encode()), Some(header));
                }
            }
        }
    }

    #[test]
    fn wishes_of_a_regroup_come_back_as_they_left() {
        for merge in Op::ALL.into_iter().map(Some).chain([None]) {
            for (strings, balanced) in [(false, true), (true, false)] {
                let wishes = RegroupWishes { strings, balanced, merge };
                assert_eq!(RegroupWishes::decode(wishes.encode()), wishes);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_header_are_refused() {
        for at in [28, 30, 31] {
            let mut bytes = [0; HEADER_BYTES];
            bytes[at] = 200;
            assert_eq!(Header::decode(&bytes), None);
        }
    }
}
