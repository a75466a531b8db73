//! Requests: a collective and its arguments, as one rank asks for it.
//!
//! [`collectives!`] is the one list of collectives with their arguments. A request of it is for plans, with spans of
//! buffers, or for callers, with counts of elements: see [`CollectiveArguments`].

use crate::Group;
use crate::plan::{Op, Plan};
use crate::span::Span;

/// What the kinds of arguments are for a `plan` function.
macro_rules! planned {
    (usize) => {
        usize
    };
    (Op) => {
        Op
    };
    (Vector) => {
        Span
    };
    (Chunks) => {
        &[Span]
    };
    (Peers) => {
        &[PeerSpan]
    };
}

/// An argument with its extent made another one.
macro_rules! with_extent {
    ($extents:ident, $value:ident, usize) => {
        $value
    };
    ($extents:ident, $value:ident, Op) => {
        $value
    };
    ($extents:ident, $value:ident, Vector) => {
        $extents.vector($value)
    };
    ($extents:ident, $value:ident, Chunks) => {
        $extents.chunks($value)
    };
    ($extents:ident, $value:ident, Peers) => {
        $extents.peers($value)
    };
}

/// The operation, if the argument is one.
macro_rules! op_of {
    ($value:ident, Op) => {
        return Some(*$value)
    };
    ($value:ident, $other:ident) => {
        let _ = $value;
    };
}

/// Makes the types of collectives from their list: those of the catalogue with name and arguments, in the order of the
/// `plan` functions, and those that no algorithm of the catalogue performs.
macro_rules! collectives {
    (
        catalogued {
            $($(#[$about:meta])* $collective:ident = $name:literal ($($argument:ident: $kind:ident),*);)*
        }
        others {
            $($(#[$planned_about:meta])* $planned:ident = $planned_name:literal;)*
        }
    ) => {
        /// Which collective.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Collective {
            $($(#[$about])* $collective,)*
            $($(#[$planned_about])* $planned,)*
        }

        impl Collective {
            /// Every collective.
            pub const ALL: [Collective; [$($name,)* $($planned_name,)*].len()] =
                [$(Collective::$collective,)* $(Collective::$planned,)*];

            /// Those that an algorithm of the catalogue performs.
            pub fn catalogued() -> impl Iterator<Item = Collective> {
                [$(Collective::$collective,)*].into_iter()
            }

            /// The name that users know.
            pub fn name(self) -> &'static str {
                match self {
                    $(Collective::$collective => $name,)*
                    $(Collective::$planned => $planned_name,)*
                }
            }
        }

        /// A collective of the catalogue with its arguments. The parameters are what stands for a vector, for
        /// consecutive chunks, one per rank, of any sizes, and for peers with what is for them or comes from them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The fields are the arguments of the `plan` functions, under the same names.
        pub enum CollectiveArguments<Vector, Chunks, Peers> {
            $($(#[$about])* $collective { $($argument: $kind),* },)*
        }

        impl<V, C, P> CollectiveArguments<V, C, P> {
            /// Which collective is asked for.
            pub fn collective(&self) -> Collective {
                match self {
                    $(CollectiveArguments::$collective { .. } => Collective::$collective,)*
                }
            }

            /// How elements combine, where they do.
            pub fn op(&self) -> Option<Op> {
                match self {
                    $(CollectiveArguments::$collective { $($argument),* } => { $(op_of!($argument, $kind);)* })*
                }
                None
            }

            /// The same with other extents.
            #[inline]
            pub fn with<E: Extents<V, C, P>>(self, extents: &mut E) -> CollectiveArguments<E::Vector, E::Chunks, E::Peers> {
                match self {
                    $(CollectiveArguments::$collective { $($argument),* } => CollectiveArguments::$collective {
                        $($argument: with_extent!(extents, $argument, $kind)),*
                    },)*
                }
            }
        }

        /// The `plan` function of an algorithm; the variant is its collective.
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs)]
        pub enum PlanFunction {
            $($collective(fn(&Group, $(planned!($kind)),*) -> Plan),)*
        }

        impl PlanFunction {
            /// Whose plans it makes.
            pub const fn collective(&self) -> Collective {
                match self {
                    $(PlanFunction::$collective(_) => Collective::$collective,)*
                }
            }

            /// A rank's plan for `request`; `None` if that asks for another collective.
            pub(crate) fn plan(&self, group: &Group, request: &Request) -> Option<Plan> {
                match (self, *request) {
                    $((PlanFunction::$collective(plan), CollectiveArguments::$collective { $($argument),* }) => {
                        Some(plan(group, $($argument),*))
                    })*
                    _ => None,
                }
            }
        }
    };
}

collectives! {
    catalogued {
        /// Every rank ends with the root's vector.
        Broadcast = "broadcast" (root: usize, vector: Vector);
        /// The root ends with the combination of all vectors.
        Reduce = "reduce" (root: usize, vector: Vector, op: Op);
        /// Every rank ends with the combination of all vectors.
        Allreduce = "allreduce" (vector: Vector, op: Op);
        /// Every rank ends with every rank's chunk.
        Allgather = "allgather" (chunks: Chunks);
        /// Every rank ends with its chunk of the combination of all vectors.
        ReduceScatter = "reduce-scatter" (chunks: Chunks, op: Op);
        /// The root ends with every rank's chunk.
        Gather = "gather" (root: usize, chunks: Chunks);
        /// Every rank ends with its chunk of the root's vector.
        Scatter = "scatter" (root: usize, chunks: Chunks);
        /// Every rank ends with the chunk that each rank had for it.
        Alltoall = "alltoall" (out_chunks: Chunks, in_chunks: Chunks);
        /// No rank goes on before all have come; the token is one byte of scratch.
        Barrier = "barrier" (token: Vector);
        /// The receiver ends with the sender's vector.
        PointToPoint = "point-to-point" (from: usize, to: usize, vector: Vector);
        /// Every rank ends with the combination of the vectors of all ranks up to it.
        Scan = "scan" (vector: Vector, op: Op);
        /// Every rank but the first ends with the combination of the vectors of all ranks before it; the first keeps
        /// its own.
        Exscan = "exscan" (vector: Vector, op: Op);
        /// `into` of every rank ends with `out` of the rank `distance` before it; the two are equally long.
        Rotate = "rotate" (distance: usize, out: Vector, into: Vector);
        /// Every rank ends with what each peer of `into` had for it in `out`; each peer stands there once at most.
        NeighbourExchange = "neighbour-exchange" (out: Peers, into: Peers);
    }
    others {
        /// Every rank ends with the combination of all ranks' rows of the indices that it wants. Planned from the sets
        /// of indices, not by an algorithm of the catalogue.
        SparseReduce = "sparse-reduce";
        /// Every rank ends with the rows of the keys that are at home with it. Planned from the sizes of what each rank
        /// has, not by an algorithm of the catalogue.
        Regroup = "regroup";
    }
}

/// A peer, and the span that is for it or comes from it.
pub type PeerSpan = (usize, Span);

/// A collective with its arguments, whose extents are spans: what plans are made for.
pub type Request<'a> = CollectiveArguments<Span, &'a [Span], &'a [PeerSpan]>;

/// Makes other extents of those of a request, which come in order: first those of the buffer that is worked on or
/// given, then those of the one for what arrives, if there are two.
pub trait Extents<V, C, P> {
    #[allow(missing_docs)]
    type Vector;
    #[allow(missing_docs)]
    type Chunks;
    #[allow(missing_docs)]
    type Peers;

    /// What becomes of a vector.
    fn vector(&mut self, vector: V) -> Self::Vector;
    /// What becomes of chunks.
    fn chunks(&mut self, chunks: C) -> Self::Chunks;
    /// What becomes of peers.
    fn peers(&mut self, peers: P) -> Self::Peers;
}

impl Collective {
    /// Whether one rank has a part of its own in it, the root.
    pub fn has_root(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
    }
}

impl<V, C, P> CollectiveArguments<V, C, P> {
    /// The root, where there is one.
    pub fn root(&self) -> Option<usize> {
        match *self {
            CollectiveArguments::Broadcast { root, .. }
            | CollectiveArguments::Reduce { root, .. }
            | CollectiveArguments::Gather { root, .. }
            | CollectiveArguments::Scatter { root, .. } => Some(root),
            _ => None,
        }
    }

    /// Whether what arrives goes to a buffer of its own.
    pub fn has_output(&self) -> bool {
        matches!(
            self,
            CollectiveArguments::Alltoall { .. }
                | CollectiveArguments::Rotate { .. }
                | CollectiveArguments::NeighbourExchange { .. }
        )
    }

    /// Whether `rank` only reads the first buffer.
    pub fn only_reads(&self, rank: usize) -> bool {
        match *self {
            CollectiveArguments::Broadcast { root, .. } | CollectiveArguments::Scatter { root, .. } => root == rank,
            CollectiveArguments::PointToPoint { from, .. } => from == rank,
            _ => self.has_output(),
        }
    }
}

impl Request<'_> {
    /// Bytes of the vector, or of all chunks together, that a rank works on or gives.
    pub fn length_bytes(&self) -> usize {
        let mut lengths = Lengths::default();
        self.with(&mut lengths);
        lengths.first_bytes.unwrap_or(0)
    }
}

/// How long the first extent is.
#[derive(Default)]
struct Lengths {
    first_bytes: Option<usize>,
}

impl Lengths {
    fn note(&mut self, lengths_bytes: impl Iterator<Item = usize>) {
        self.first_bytes.get_or_insert_with(|| lengths_bytes.sum());
    }
}

impl Extents<Span, &[Span], &[PeerSpan]> for Lengths {
    type Vector = ();
    type Chunks = ();
    type Peers = ();

    fn vector(&mut self, vector: Span) {
        self.note([vector.length_bytes].into_iter());
    }

    fn chunks(&mut self, chunks: &[Span]) {
        self.note(chunks.iter().map(|chunk| chunk.length_bytes));
    }

    fn peers(&mut self, peers: &[PeerSpan]) {
        self.note(peers.iter().map(|(_, span)| span.length_bytes));
    }
}
