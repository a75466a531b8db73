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
    /// The root, where there is one; the receiver for point-to-point, the step of a regroup, the number of the
    /// configuration of a sparse reduction.
    pub root: u32,
    /// Elements in all, of a sparse reduction or a regroup those of a row; 0 where every rank has another count (alltoall).
    pub element_count: u64,
    /// A hash of what else ranks must give alike and no other field has: shapes, keys, counts per rank, the order; 0 where
    /// that is one line of elements in the default order. Each rank can say [in words](Told::form) what its own stands for.
    pub form: u32,
}

/// What a rank called, and in words what the form of that stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// What it called, and when.
    pub header: Header,
    /// What the form stands for; empty where there is none, or where nobody has told.
    pub form: String,
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
pub struct CollectiveId {
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

impl Told {
    /// Of whose form nobody has told what it stands for.
    pub fn untold(header: Header) -> Told {
        Told { header, form: String::new() }
    }

    /// Whether the form is told, if there is one.
    pub fn is_whole(&self) -> bool {
        self.header.call.form == 0 || !self.form.is_empty()
    }

    /// The call, for people.
    pub fn call(&self) -> String {
        match self.is_whole() {
            true => self.header.call.described(&self.form),
            false => self.header.call.described(&format!("form #{:08x}", self.header.call.form)),
        }
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
    pub fn collective_id(&self) -> CollectiveId {
        CollectiveId { communicator: self.communicator, sequence: self.sequence }
    }

    /// The bytes that travel.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Call { collective, algorithm, element, op, root, element_count, form } = self.call;
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&element_count.to_le_bytes());
        bytes[16..20].copy_from_slice(&form.to_le_bytes());
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
                form: half(16),
            },
        })
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.described(""))
    }
}

impl Call {
    /// The call, for people, with what is known of its form.
    fn described(&self, form: &str) -> String {
        let Call { collective, algorithm, element, op, root, element_count, .. } = self;
        let (name, element) = (collective.name(), element.name());
        let form = if form.is_empty() { String::new() } else { format!(", {form}") };
        if *collective == Collective::Barrier && *algorithm == 0 {
            return name.to_string();
        }
        if *collective == Collective::SparseReduce {
            let op = op.map_or("no op", Op::name);
            return format!("{name}(rows of {element} × {element_count}, {op}{form}, configuration {root})");
        }
        if *collective == Collective::Regroup {
            return self.described_regroup(&form);
        }
        let op = op.map_or(String::new(), |op| format!(", {}", op.name()));
        let root = match collective {
            Collective::PointToPoint => format!(", to {root}"),
            Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter => {
                format!(", root {root}")
            }
            _ => String::new(),
        };
        let algorithm = match Algorithm::by_index(*collective, *algorithm) {
            Some(algorithm) => algorithm.name.to_string(),
            None => format!("unknown algorithm {algorithm}"),
        };
        format!("{name}({element} × {element_count}{op}{root}{form}, {algorithm})")
    }

    fn described_regroup(&self, form: &str) -> String {
        let Call { collective, algorithm, element, op, root, element_count, .. } = self;
        let RegroupWishes { strings, balanced, merge } = RegroupWishes::decode(*algorithm);
        let keys = if strings { "string" } else { "int64" };
        let [op, merge] = [*op, merge].map(|op| op.map_or("concat", Op::name));
        let balanced = if balanced { ", balanced" } else { "" };
        let (collective, element) = (collective.name(), element.name());
        format!(
            "{collective}({keys} keys, rows of {element} × {element_count}, {op}, merged by {merge}{balanced}, step {root}{form})"
        )
    }
}

impl std::fmt::Display for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.call)?;
        self.number(f)
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.call())?;
        self.header.number(f)
    }
}

impl Header {
    fn number(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.call.concerns_all() { "collective" } else { "message" };
        write!(f, " as its {what} {}", self.sequence)?;
        of_communicator(f, self.communicator)
    }
}

impl std::fmt::Display for CollectiveId {
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
                    let call = Call { collective, algorithm: 3, element, op, root: 7, element_count: 1 << 40, form: 5 };
                    let header = Header { communicator: 1 << 31, sequence: u64::MAX - 1, call };
                    assert_eq!(Header::decode(&header.encode()), Some(header));
                }
            }
        }
    }

    #[test]
    fn a_form_is_told_in_words_where_these_are_known() {
        let (collective, element, op) = (Collective::Allreduce, Element::I64, Some(Op::Sum));
        let call = Call { collective, algorithm: 0, element, op, root: 0, element_count: 6, form: 0xabc };
        let header = Header { communicator: 0, sequence: 7, call };
        let told = Told { header, form: "shape (2, 3)".to_string() };
        assert_eq!(told.call(), "allreduce(int64 × 6, sum, shape (2, 3), bidirectional-exchange)");
        assert_eq!(told.to_string(), format!("{} as its collective 7", told.call()));
        assert!(Told::untold(header).call().contains("form #00000abc"));
        assert!(!call.to_string().contains("form"));
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
