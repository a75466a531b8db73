//! Calls: the 32-byte header that precedes a rank's data on every link and describes the rank's request.
//!
//! Both ranks of a link compare their headers before they use any data. A mismatch therefore raises an error
//! that names both calls and never corrupts data.

use ripieno_plan::{Algorithm, Collective, Op};
pub use ripieno_reduce::Element;

/// Size of an encoded [`Header`] in bytes.
pub const HEADER_BYTES: usize = 32;

/// The request of a rank. All ranks of one collective must have equal calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Kind of the call and its parameters.
    pub kind: CallKind,
    /// Element type.
    pub element: Element,
    /// Hash of the remaining properties that must be equal on all ranks: shapes, keys, counts per rank and the order.
    /// It is 0 for a flat array in the default order. Each rank can describe its own signature in
    /// [text](DescribedCall::signature).
    pub signature: u32,
}

/// The kinds of calls. A `width` is the number of elements per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A collective with algorithms in the catalogue, except the next two kinds.
    Catalogued {
        /// The collective.
        collective: Collective,
        /// Index of the algorithm in the list of its collective.
        algorithm: u8,
        /// Reduction operation, or `None` if the collective does not reduce.
        op: Option<Op>,
        /// The root, or 0 for collectives without a root.
        root: u32,
        /// Total number of elements, or 0 if the count differs between ranks (alltoall).
        element_count: u64,
    },
    /// Every rank receives the data of another rank. The counts may differ.
    Rotation {
        /// Index of the algorithm.
        algorithm: u8,
        /// Distance in ranks that the data travels.
        distance: u32,
    },
    /// A point-to-point message. Only the two ranks take part.
    Message {
        /// Index of the algorithm.
        algorithm: u8,
        /// The receiver.
        to: u32,
        /// Number of elements.
        element_count: u64,
    },
    /// A sparse reduction.
    Sparse {
        /// Number of the configuration.
        configuration: u32,
        /// Reduction operation for rows.
        op: Op,
        #[allow(missing_docs)]
        width: u64,
    },
    /// One step of a regroup.
    Regroup {
        /// Number of the step, starting at 0.
        step: u32,
    },
    /// Checked plans of the caller.
    Plan {
        /// Reduction operation, or `None` if the plans do not combine.
        op: Option<Op>,
        /// Hash of the plans of all ranks.
        fingerprint: u64,
    },
}

/// A call with a description of its signature.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedCall {
    /// Header of the call.
    pub header: Header,
    /// Description of the signature. Empty if the call has none or if it is unknown.
    pub signature: String,
}

/// Header that precedes the data of one collective on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The communicator; 0 is the communicator of all ranks.
    pub communicator: u32,
    /// Number of the collective within the communicator. For a message: number among the messages from its sender to
    /// its receiver.
    pub sequence: u64,
    /// The sender's call.
    pub call: Call,
}

/// Identifies one collective of one communicator, independent of the calls of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveId {
    /// The communicator; 0 is the communicator of all ranks.
    pub communicator: u32,
    /// Number of the collective.
    pub sequence: u64,
}

impl Call {
    /// Return the collective.
    #[inline]
    pub fn collective(&self) -> Collective {
        match self.kind {
            CallKind::Catalogued { collective, .. } => collective,
            CallKind::Rotation { .. } => Collective::Rotate,
            CallKind::Message { .. } => Collective::PointToPoint,
            CallKind::Sparse { .. } => Collective::SparseReduce,
            CallKind::Regroup { .. } => Collective::Regroup,
            CallKind::Plan { .. } => Collective::Plan,
        }
    }

    /// Return whether the call is in the catalogue and reduces.
    #[inline]
    pub fn reduces(&self) -> bool {
        matches!(self.kind, CallKind::Catalogued { op: Some(_), .. })
    }

    /// Return the index of the algorithm if the call is in the catalogue.
    #[inline]
    pub fn algorithm(&self) -> Option<u8> {
        match self.kind {
            CallKind::Catalogued { algorithm, .. }
            | CallKind::Rotation { algorithm, .. }
            | CallKind::Message { algorithm, .. } => Some(algorithm),
            CallKind::Sparse { .. } | CallKind::Regroup { .. } | CallKind::Plan { .. } => None,
        }
    }

    /// Return the reduction operation, if the call reduces.
    #[inline]
    pub fn op(&self) -> Option<Op> {
        match self.kind {
            CallKind::Catalogued { op, .. } | CallKind::Plan { op, .. } => op,
            CallKind::Sparse { op, .. } => Some(op),
            CallKind::Rotation { .. } | CallKind::Message { .. } | CallKind::Regroup { .. } => None,
        }
    }

    /// Return the size of the data in bytes, or `None` if it differs between ranks.
    #[inline]
    pub fn length_bytes(&self) -> Option<u64> {
        match self.kind {
            CallKind::Catalogued { element_count, .. } | CallKind::Message { element_count, .. } => {
                (element_count > 0).then(|| element_count * self.element.size_bytes() as u64)
            }
            CallKind::Rotation { .. } | CallKind::Sparse { .. } | CallKind::Regroup { .. } | CallKind::Plan { .. } => {
                None
            }
        }
    }

    /// Return the receiver of a message.
    #[inline]
    pub fn receiver(&self) -> Option<u32> {
        match self.kind {
            CallKind::Message { to, .. } => Some(to),
            _ => None,
        }
    }

    /// Return whether all ranks take part and therefore have equal calls under one sequence number. A message concerns
    /// two ranks.
    #[inline]
    pub fn concerns_all(&self) -> bool {
        self.receiver().is_none()
    }
}

impl DescribedCall {
    /// Return a call without a description of its signature.
    pub fn undescribed(header: Header) -> DescribedCall {
        DescribedCall { header, signature: String::new() }
    }

    /// Return whether the description of the signature is known, or the call has no signature.
    pub fn is_described(&self) -> bool {
        self.header.call.signature == 0 || !self.signature.is_empty()
    }

    /// Return a readable description of the call.
    pub fn call(&self) -> String {
        match self.is_described() {
            true => self.header.call.described(&self.signature),
            false => self.header.call.described(&format!("signature #{:08x}", self.header.call.signature)),
        }
    }
}

/// Replace the sequence number in an encoded header.
#[inline]
pub(crate) fn set_sequence(encoded: &mut [u8; HEADER_BYTES], sequence: u64) {
    encoded[..size_of::<u64>()].copy_from_slice(&sequence.to_le_bytes());
}

/// Encoding of "no operation".
const NO_OP: u8 = u8::MAX;

/// Wire fields of a call kind.
struct Encoded {
    collective: u8,
    /// Algorithm of a catalogued collective.
    detail: u8,
    op: u8,
    /// Root, distance, receiver, configuration or step.
    number: u32,
    /// Total number of elements, or elements per row.
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
            CallKind::Plan { op, fingerprint } => encoded(Collective::Plan, 0, op, 0, fingerprint),
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
            Collective::Plan => match (detail, number) {
                (0, 0) => CallKind::Plan { op, fingerprint: count },
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

/// Decode an operation. Return `None` if the number is invalid.
fn decode_op(number: u8) -> Option<Option<Op>> {
    match number {
        NO_OP => Some(None),
        number if number == Op::Function as u8 => Some(Some(Op::Function)),
        number => Op::ALL.get(number as usize).copied().map(Some),
    }
}

impl Header {
    /// Return the collective of this header.
    pub fn collective_id(&self) -> CollectiveId {
        CollectiveId { communicator: self.communicator, sequence: self.sequence }
    }

    /// Return the wire format.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Call { kind, element, signature } = self.call;
        let Encoded { collective, detail, op, number, count } = kind.encode();
        let mut bytes = [0; HEADER_BYTES];
        set_sequence(&mut bytes, self.sequence);
        bytes[8..16].copy_from_slice(&count.to_le_bytes());
        bytes[16..20].copy_from_slice(&signature.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.communicator.to_le_bytes());
        bytes[24..28].copy_from_slice(&number.to_le_bytes());
        bytes[28..32].copy_from_slice(&[collective, detail, element as u8, op]);
        bytes
    }

    /// Decode a header. Return `None` if the bytes are not a valid header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let [collective, detail, element, op] = bytes[28..32].try_into().expect("four bytes");
        let kind = CallKind::decode(Encoded { collective, detail, op, number: half(24), count: word(8) })?;
        let call = Call { kind, element: *Element::ALL.get(element as usize)?, signature: half(16) };
        Some(Header { communicator: half(20), sequence: word(0), call })
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.described(""))
    }
}

impl Call {
    /// Describe the call with the given description of its signature.
    fn described(&self, signature: &str) -> String {
        let (name, element) = (self.collective().name(), self.element.name());
        let signature = if signature.is_empty() { String::new() } else { format!(", {signature}") };
        match self.kind {
            CallKind::Catalogued { collective: Collective::Barrier, algorithm: 0, .. } => name.to_string(),
            CallKind::Catalogued { collective, algorithm, op, root, element_count } => {
                let op = op.map_or(String::new(), |op| format!(", {}", op.name()));
                let root = if collective.has_root() { format!(", root {root}") } else { String::new() };
                let algorithm = algorithm_name(collective, algorithm);
                format!("{name}({element} × {element_count}{op}{root}{signature}, {algorithm})")
            }
            CallKind::Rotation { algorithm, distance } => {
                let algorithm = algorithm_name(Collective::Rotate, algorithm);
                format!("{name}({element}, distance {distance}{signature}, {algorithm})")
            }
            CallKind::Message { algorithm, to, element_count } => {
                let algorithm = algorithm_name(Collective::PointToPoint, algorithm);
                format!("{name}({element} × {element_count}, to {to}{signature}, {algorithm})")
            }
            CallKind::Sparse { configuration, op, width } => {
                let op = op.name();
                format!("{name}(rows of {element} × {width}, {op}{signature}, configuration {configuration})")
            }
            CallKind::Regroup { step } => format!("{name}(step {step}{signature})"),
            CallKind::Plan { op, fingerprint } => {
                let op = op.map_or(String::new(), |op| format!(", {}", op.name()));
                format!("{name}({element}{op}{signature}, fingerprint {fingerprint:016x})")
            }
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
        self.write_number(f)
    }
}

impl std::fmt::Display for DescribedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.call())?;
        self.header.write_number(f)
    }
}

impl Header {
    /// Describe the call of `rank` that waits for `peers`: an end of a message as the rank called it.
    pub fn at(&self, rank: usize, peers: &[usize]) -> String {
        let CallKind::Message { to, element_count, .. } = self.call.kind else { return self.to_string() };
        let ([peer], 0) = (peers, self.communicator) else { return self.to_string() };
        let (element, number) = (self.call.element.name(), self.sequence);
        let (name, direction) = if to as usize == rank { ("recv", "from") } else { ("send", "to") };
        format!("{name}({element} × {element_count}, {direction} rank {peer}) as its message {number}")
    }

    fn write_number(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.call.concerns_all() { "collective" } else { "message" };
        write!(f, " as its {kind} {}", self.sequence)?;
        write_communicator(f, self.communicator)
    }
}

impl std::fmt::Display for CollectiveId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "collective {}", self.sequence)?;
        write_communicator(f, self.communicator)
    }
}

/// Append the communicator, unless it is the communicator of all ranks.
fn write_communicator(f: &mut std::fmt::Formatter<'_>, communicator: u32) -> std::fmt::Result {
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
            (option(), any::<u64>()).prop_map(|(op, fingerprint)| CallKind::Plan { op, fingerprint }),
        ]
    }

    fn option() -> impl Strategy<Value = Option<Op>> {
        select(OPS.into_iter().map(Some).chain([None]).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn every_header_round_trips(
            kind in kinds(),
            element in select(Element::ALL.to_vec()),
            signature: u32,
            communicator: u32,
            sequence: u64,
        ) {
            let header = Header { communicator, sequence, call: Call { kind, element, signature } };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
        }

        #[test]
        fn a_decoded_header_encodes_to_the_same_bytes(
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
    fn a_known_signature_is_described() {
        let (collective, op) = (Collective::Allreduce, Some(Op::Sum));
        let kind = CallKind::Catalogued { collective, algorithm: 0, op, root: 0, element_count: 6 };
        let call = Call { kind, element: Element::I64, signature: 0xabc };
        let header = Header { communicator: 0, sequence: 7, call };
        let reported = DescribedCall { header, signature: "shape (2, 3)".to_string() };
        assert_eq!(reported.call(), "allreduce(int64 × 6, sum, shape (2, 3), bidirectional-exchange)");
        assert_eq!(reported.to_string(), format!("{} as its collective 7", reported.call()));
        assert!(DescribedCall::undescribed(header).call().contains("signature #00000abc"));
        assert!(!call.to_string().contains("signature"));
    }

    #[test]
    fn every_kind_of_call_is_reported_with_its_arguments() {
        let reported = |kind| Call { kind, element: Element::F32, signature: 0 }.to_string();
        let (collective, op) = (Collective::Reduce, Some(Op::Sum));
        let reduce = CallKind::Catalogued { collective, algorithm: 9, op, root: 3, element_count: 5 };
        assert_eq!(reported(reduce), "reduce(float32 × 5, sum, root 3, unknown algorithm 9)");
        assert_eq!(reported(CallKind::Rotation { algorithm: 0, distance: 2 }), "rotate(float32, distance 2, direct)");
        let message = CallKind::Message { algorithm: 0, to: 4, element_count: 5 };
        assert_eq!(reported(message), "point-to-point(float32 × 5, to 4, direct)");
        let sparse = CallKind::Sparse { configuration: 2, op: Op::Min, width: 7 };
        assert_eq!(reported(sparse), "sparse-reduce(rows of float32 × 7, min, configuration 2)");
        assert_eq!(reported(CallKind::Regroup { step: 1 }), "regroup(step 1)");
        let plan = CallKind::Plan { op, fingerprint: 0xab };
        assert_eq!(reported(plan), "plan(float32, sum, fingerprint 00000000000000ab)");
    }

    #[test]
    fn an_end_of_a_message_is_named_only_if_the_receiver_is_a_rank_of_the_world() {
        let call = Call {
            kind: CallKind::Message { algorithm: 0, to: 1, element_count: 5 },
            element: Element::F32,
            signature: 0,
        };
        let header = Header { communicator: 0, sequence: 7, call };
        assert_eq!(header.at(1, &[3]), "recv(float32 × 5, from rank 3) as its message 7");
        assert_eq!(header.at(3, &[1]), "send(float32 × 5, to rank 1) as its message 7");
        // Rank 3 of the world may be logical rank 1, so the direction is unknown here.
        let replicated = Header { communicator: u32::MAX, ..header };
        for (rank, peers) in [(3, vec![0]), (1, vec![0, 2])] {
            let text = replicated.at(rank, &peers);
            assert!(text.starts_with("point-to-point(float32 × 5, to 1, direct) as its message 7 of"), "{text}");
        }
    }

    #[test]
    fn invalid_bytes_are_no_header() {
        for at in [28, 30, 31] {
            let mut bytes = [0; HEADER_BYTES];
            bytes[at] = 200;
            assert_eq!(Header::decode(&bytes), None);
        }
    }
}
