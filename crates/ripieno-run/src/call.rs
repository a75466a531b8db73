//! Calls: what a rank asked for, as the 32 bytes that travel ahead of its data on every link.
//!
//! Two ranks that meet on a link compare their calls before a byte of data is used, so a mismatch is an error that says
//! who called what, never garbage.

use ripieno_plan::{Algorithm, Collective, Op};
pub use ripieno_reduce::Element;

/// Bytes of an encoded [`Header`].
pub const HEADER_BYTES: usize = 32;

/// What a rank asked for. Ranks that run one collective together have equal calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// What it is, with what it depends on.
    pub kind: CallKind,
    /// Type of the elements.
    pub element: Element,
    /// A hash of what else ranks must give alike and no other field has: shapes, keys, counts per rank, the order; 0
    /// where that is one line of elements in the default order. Each rank can say [in words](Told::form) what its own
    /// stands for.
    pub form: u32,
}

/// The kinds of calls. A `width` counts the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A collective that an algorithm of the catalogue performs, but for the two that follow.
    Catalogued {
        /// Which collective.
        collective: Collective,
        /// Index of the algorithm in the list of its collective.
        algorithm: u8,
        /// How elements combine, where they do.
        op: Option<Op>,
        /// The root; 0 where there is none.
        root: u32,
        /// Elements in all; 0 where every rank has another count (alltoall).
        element_count: u64,
    },
    /// Every rank gets what another one has, of any count.
    Rotation {
        /// Index of the algorithm.
        algorithm: u8,
        /// How far what a rank has travels.
        distance: u32,
    },
    /// What one rank gives another; only the two take part.
    Message {
        /// Index of the algorithm.
        algorithm: u8,
        /// The receiver.
        to: u32,
        /// Elements.
        element_count: u64,
    },
    /// A sparse reduction.
    Sparse {
        /// Number of the configuration.
        configuration: u32,
        /// How rows combine.
        op: Op,
        #[allow(missing_docs)]
        width: u64,
    },
    /// One step of a regroup.
    Regroup {
        /// Number of the step, from 0 on.
        step: u32,
    },
}

/// What a rank called, and in words what the form of that stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedCall {
    /// What it called, and when.
    pub header: Header,
    /// What the form stands for; empty where there is none, or where nobody has told.
    pub form: String,
}

/// What travels ahead of the data of one collective on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose collective; 0 is the communicator of all ranks.
    pub communicator: u32,
    /// The number of the collective among those of this communicator; of a message, among those from its sender to its
    /// receiver.
    pub sequence: u64,
    /// What the sender asked for.
    pub call: Call,
}

/// One collective of one communicator, whatever each rank called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveId {
    /// Whose collective; 0 is the communicator of all ranks.
    pub communicator: u32,
    /// Its number.
    pub sequence: u64,
}

impl Call {
    /// Which collective.
    #[inline]
    pub fn collective(&self) -> Collective {
        match self.kind {
            CallKind::Catalogued { collective, .. } => collective,
            CallKind::Rotation { .. } => Collective::Rotate,
            CallKind::Message { .. } => Collective::PointToPoint,
            CallKind::Sparse { .. } => Collective::SparseReduce,
            CallKind::Regroup { .. } => Collective::Regroup,
        }
    }

    /// Index of the algorithm in the catalogue, if it is of that.
    #[inline]
    pub fn algorithm(&self) -> Option<u8> {
        match self.kind {
            CallKind::Catalogued { algorithm, .. }
            | CallKind::Rotation { algorithm, .. }
            | CallKind::Message { algorithm, .. } => Some(algorithm),
            CallKind::Sparse { .. } | CallKind::Regroup { .. } => None,
        }
    }

    /// How elements combine, where they do.
    #[inline]
    pub fn op(&self) -> Option<Op> {
        match self.kind {
            CallKind::Catalogued { op, .. } => op,
            CallKind::Sparse { op, .. } => Some(op),
            CallKind::Rotation { .. } | CallKind::Message { .. } | CallKind::Regroup { .. } => None,
        }
    }

    /// Bytes that the call is about; `None` where every rank gives another size.
    #[inline]
    pub fn length_bytes(&self) -> Option<u64> {
        match self.kind {
            CallKind::Catalogued { element_count, .. } | CallKind::Message { element_count, .. } => {
                (element_count > 0).then(|| element_count * self.element.size_bytes() as u64)
            }
            CallKind::Rotation { .. } | CallKind::Sparse { .. } | CallKind::Regroup { .. } => None,
        }
    }

    /// Who gets a message.
    #[inline]
    pub fn receiver(&self) -> Option<u32> {
        match self.kind {
            CallKind::Message { to, .. } => Some(to),
            _ => None,
        }
    }

    /// Whether every rank takes part, so that all calls under one sequence number are equal; a message concerns two.
    #[inline]
    pub fn concerns_all(&self) -> bool {
        self.receiver().is_none()
    }
}

impl DescribedCall {
    /// Of whose form nobody has told what it stands for.
    pub fn untold(header: Header) -> DescribedCall {
        DescribedCall { header, form: String::new() }
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

/// Gives an encoded header another number.
#[inline]
pub(crate) fn set_sequence(encoded: &mut [u8; HEADER_BYTES], sequence: u64) {
    encoded[..size_of::<u64>()].copy_from_slice(&sequence.to_le_bytes());
}

/// The number on the wire that says "no operation".
const NO_OP: u8 = u8::MAX;

/// What a kind of call is on the wire.
struct Encoded {
    collective: u8,
    /// The algorithm of a collective of the catalogue.
    detail: u8,
    op: u8,
    /// Root, distance, receiver, configuration or step.
    number: u32,
    /// Elements in all, or of a row.
    count: u64,
}

impl CallKind {
    #[inline]
    fn encode(&self) -> Encoded {
        let encoded = |collective: Collective, detail, op, number, count| Encoded {
            collective: collective as u8,
            detail,
            op: encode_op(op),
            number,
            count,
        };
        match *self {
            CallKind::Catalogued { collective, algorithm, op, root, element_count } => {
                encoded(collective, algorithm, op, root, element_count)
            }
            CallKind::Rotation { algorithm, distance } => encoded(Collective::Rotate, algorithm, None, distance, 0),
            CallKind::Message { algorithm, to, element_count } => {
                encoded(Collective::PointToPoint, algorithm, None, to, element_count)
            }
            CallKind::Sparse { configuration, op, width } => {
                encoded(Collective::SparseReduce, 0, Some(op), configuration, width)
            }
            CallKind::Regroup { step } => encoded(Collective::Regroup, 0, None, step, 0),
        }
    }

    fn decode(Encoded { collective, detail, op, number, count }: Encoded) -> Option<CallKind> {
        let (collective, op) = (*Collective::ALL.get(collective as usize)?, decode_op(op)?);
        Some(match collective {
            Collective::Rotate => match (op, count) {
                (None, 0) => CallKind::Rotation { algorithm: detail, distance: number },
                _ => return None,
            },
            Collective::PointToPoint => match op {
                None => CallKind::Message { algorithm: detail, to: number, element_count: count },
                Some(_) => return None,
            },
            Collective::SparseReduce => match detail {
                0 => CallKind::Sparse { configuration: number, op: op?, width: count },
                _ => return None,
            },
            Collective::Regroup => match (detail, op, count) {
                (0, None, 0) => CallKind::Regroup { step: number },
                _ => return None,
            },
            collective => {
                CallKind::Catalogued { collective, algorithm: detail, op, root: number, element_count: count }
            }
        })
    }
}

#[inline]
fn encode_op(op: Option<Op>) -> u8 {
    op.map_or(NO_OP, |op| op as u8)
}

/// `None` if the number is of no operation.
fn decode_op(number: u8) -> Option<Option<Op>> {
    match number {
        NO_OP => Some(None),
        number if number == Op::Function as u8 => Some(Some(Op::Function)),
        number => Op::ALL.get(number as usize).copied().map(Some),
    }
}

impl Header {
    /// Which collective it belongs to.
    pub fn collective_id(&self) -> CollectiveId {
        CollectiveId { communicator: self.communicator, sequence: self.sequence }
    }

    /// The bytes that travel.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Call { kind, element, form } = self.call;
        let Encoded { collective, detail, op, number, count } = kind.encode();
        let mut bytes = [0; HEADER_BYTES];
        set_sequence(&mut bytes, self.sequence);
        bytes[8..16].copy_from_slice(&count.to_le_bytes());
        bytes[16..20].copy_from_slice(&form.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.communicator.to_le_bytes());
        bytes[24..28].copy_from_slice(&number.to_le_bytes());
        bytes[28..32].copy_from_slice(&[collective, detail, element as u8, op]);
        bytes
    }

    /// What travelled; `None` if the bytes are no header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let [collective, detail, element, op] = bytes[28..32].try_into().expect("four bytes");
        let kind = CallKind::decode(Encoded { collective, detail, op, number: half(24), count: word(8) })?;
        let call = Call { kind, element: *Element::ALL.get(element as usize)?, form: half(16) };
        Some(Header { communicator: half(20), sequence: word(0), call })
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
        let (name, element) = (self.collective().name(), self.element.name());
        let form = if form.is_empty() { String::new() } else { format!(", {form}") };
        match self.kind {
            CallKind::Catalogued { collective: Collective::Barrier, algorithm: 0, .. } => name.to_string(),
            CallKind::Catalogued { collective, algorithm, op, root, element_count } => {
                let op = op.map_or(String::new(), |op| format!(", {}", op.name()));
                let root = if collective.has_root() { format!(", root {root}") } else { String::new() };
                let algorithm = algorithm_name(collective, algorithm);
                format!("{name}({element} × {element_count}{op}{root}{form}, {algorithm})")
            }
            CallKind::Rotation { algorithm, distance } => {
                let algorithm = algorithm_name(Collective::Rotate, algorithm);
                format!("{name}({element}, distance {distance}{form}, {algorithm})")
            }
            CallKind::Message { algorithm, to, element_count } => {
                let algorithm = algorithm_name(Collective::PointToPoint, algorithm);
                format!("{name}({element} × {element_count}, to {to}{form}, {algorithm})")
            }
            CallKind::Sparse { configuration, op, width } => {
                let op = op.name();
                format!("{name}(rows of {element} × {width}, {op}{form}, configuration {configuration})")
            }
            CallKind::Regroup { step } => format!("{name}(step {step}{form})"),
        }
    }
}

fn algorithm_name(collective: Collective, index: u8) -> String {
    match Algorithm::by_index(collective, index) {
        Some(algorithm) => algorithm.name.to_string(),
        None => format!("unknown algorithm {index}"),
    }
}

impl std::fmt::Display for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.call)?;
        self.number(f)
    }
}

impl std::fmt::Display for DescribedCall {
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
    use proptest::prelude::*;
    use proptest::sample::select;

    const OPS: [Op; 8] = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor, Op::Function];

    /// Calls of every kind.
    fn kinds() -> impl Strategy<Value = CallKind> {
        let is_plain = |collective: &Collective| !matches!(collective, Collective::Rotate | Collective::PointToPoint);
        let plain = select(Collective::catalogued().filter(is_plain).collect::<Vec<_>>());
        let op = select(OPS.to_vec());
        let catalogued = (plain, any::<u8>(), option(), any::<u32>(), any::<u64>());
        prop_oneof![
            catalogued.prop_map(|(collective, algorithm, op, root, element_count)| {
                CallKind::Catalogued { collective, algorithm, op, root, element_count }
            }),
            any::<(u8, u32)>().prop_map(|(algorithm, distance)| CallKind::Rotation { algorithm, distance }),
            any::<(u8, u32, u64)>().prop_map(|(algorithm, to, element_count)| CallKind::Message {
                algorithm,
                to,
                element_count
            }),
            (any::<u32>(), op, any::<u64>()).prop_map(|(configuration, op, width)| CallKind::Sparse {
                configuration,
                op,
                width
            }),
            any::<u32>().prop_map(|step| CallKind::Regroup { step }),
        ]
    }

    fn option() -> impl Strategy<Value = Option<Op>> {
        select(OPS.into_iter().map(Some).chain([None]).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn every_header_comes_back_as_it_left(
            kind in kinds(),
            element in select(Element::ALL.to_vec()),
            form: u32,
            communicator: u32,
            sequence: u64,
        ) {
            let header = Header { communicator, sequence, call: Call { kind, element, form } };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
        }

        #[test]
        fn bytes_are_a_header_that_encodes_to_them_or_none(
            mut bytes: [u8; HEADER_BYTES],
            kind in 0u8..20,
            op in 0u8..20,
        ) {
            bytes[28] = kind;
            bytes[30] %= 16;
            bytes[31] = if op == 19 { NO_OP } else { op };
            if let Some(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_form_is_told_in_words_where_these_are_known() {
        let (collective, op) = (Collective::Allreduce, Some(Op::Sum));
        let kind = CallKind::Catalogued { collective, algorithm: 0, op, root: 0, element_count: 6 };
        let call = Call { kind, element: Element::I64, form: 0xabc };
        let header = Header { communicator: 0, sequence: 7, call };
        let told = DescribedCall { header, form: "shape (2, 3)".to_string() };
        assert_eq!(told.call(), "allreduce(int64 × 6, sum, shape (2, 3), bidirectional-exchange)");
        assert_eq!(told.to_string(), format!("{} as its collective 7", told.call()));
        assert!(DescribedCall::untold(header).call().contains("form #00000abc"));
        assert!(!call.to_string().contains("form"));
    }

    #[test]
    fn every_kind_of_call_is_told_with_what_it_depends_on() {
        let told = |kind| Call { kind, element: Element::F32, form: 0 }.to_string();
        let (collective, op) = (Collective::Reduce, Some(Op::Sum));
        let reduce = CallKind::Catalogued { collective, algorithm: 9, op, root: 3, element_count: 5 };
        assert_eq!(told(reduce), "reduce(float32 × 5, sum, root 3, unknown algorithm 9)");
        assert_eq!(told(CallKind::Rotation { algorithm: 0, distance: 2 }), "rotate(float32, distance 2, direct)");
        let message = CallKind::Message { algorithm: 0, to: 4, element_count: 5 };
        assert_eq!(told(message), "point-to-point(float32 × 5, to 4, direct)");
        let sparse = CallKind::Sparse { configuration: 2, op: Op::Min, width: 7 };
        assert_eq!(told(sparse), "sparse-reduce(rows of float32 × 7, min, configuration 2)");
        assert_eq!(told(CallKind::Regroup { step: 1 }), "regroup(step 1)");
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
