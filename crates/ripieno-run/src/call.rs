//! Calls: what a rank asked for, as the 32 bytes that travel ahead of its data on every link.
//!
//! Two ranks that meet on a link compare their calls before a byte of data is used, so a mismatch is an error that says
//! who called what, never garbage.

use ripieno_plan::Op;

/// Bytes of an encoded [`Header`].
pub const HEADER_BYTES: usize = 32;

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Every rank ends with the root's data.
    Broadcast,
    /// The root ends with the combination of all.
    Reduce,
    /// Every rank ends with the combination of all.
    Allreduce,
    /// Every rank ends with every rank's chunk.
    Allgather,
    /// Every rank ends with its chunk of the combination of all.
    ReduceScatter,
    /// The root ends with every rank's chunk.
    Gather,
    /// Every rank ends with its chunk of the root's data.
    Scatter,
    /// Every rank ends with the chunk that each rank had for it.
    Alltoall,
    /// No rank goes on before all have come.
    Barrier,
    /// One rank's data goes to one other.
    PointToPoint,
}

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
    pub kind: Kind,
    /// Index of the algorithm in the list of its collective.
    pub algorithm: u8,
    /// Type of the elements.
    pub element: Element,
    /// How elements combine, where they do.
    pub op: Option<Op>,
    /// The root, where there is one; the receiver for point-to-point.
    pub root: u32,
    /// Elements in all.
    pub element_count: u64,
    /// A hash of the counts per rank, where they are given; 0 otherwise.
    pub counts_hash: u64,
}

/// What travels ahead of the data of one collective on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The how-manieth collective of this communicator.
    pub sequence: u64,
    /// What the sender asked for.
    pub call: Call,
}
