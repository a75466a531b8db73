//! Requests: a collective and its arguments from the view of one rank.
//!
//! `collectives!` is the single list of collectives and their arguments. [`CollectiveArguments`] serves plans, which
//! use spans of buffers, and callers, which use element counts.

use crate::Group;
use crate::plan::{Op, Plan};
use crate::span::Span;

/// Map each kind of argument to its type in a `plan` function.
macro_rules! plan_argument {
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

/// Convert the extent of one argument.
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

/// Return the operation if the argument is one.
macro_rules! op_of {
    ($value:ident, Op) => {
        return Some(*$value)
    };
    ($value:ident, $other:ident) => {
        let _ = $value;
    };
}

/// Define the collective types from one list. It contains the collectives of the catalogue, with arguments in the order
/// of the `plan` functions, and the collectives without a catalogued algorithm.
macro_rules! collectives {
    (
        catalogued {
            $($(#[$about:meta])* $collective:ident = $name:literal ($($argument:ident: $kind:ident),*);)*
        }
        uncatalogued {
            $($(#[$uncatalogued_about:meta])* $uncatalogued:ident = $uncatalogued_name:literal;)*
        }
    ) => {
        /// A collective operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Collective {
            $($(#[$about])* $collective,)*
            $($(#[$uncatalogued_about])* $uncatalogued,)*
        }

        impl Collective {
            /// All collectives.
            pub const ALL: [Collective; [$($name,)* $($uncatalogued_name,)*].len()] =
                [$(Collective::$collective,)* $(Collective::$uncatalogued,)*];

            /// Iterate over the collectives that an algorithm of the catalogue performs.
            pub fn catalogued() -> impl Iterator<Item = Collective> {
                [$(Collective::$collective,)*].into_iter()
            }

            /// Return the public name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Collective::$collective => $name,)*
                    $(Collective::$uncatalogued => $uncatalogued_name,)*
                }
            }
        }

        /// A collective of the catalogue with its arguments.
        ///
        /// The type parameters represent a vector, a sequence of chunks, and a list of peers. A sequence has one chunk
        /// of any size per rank. A list of peers includes the data sent to or received from them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The fields are the arguments of the `plan` functions, under the same names.
        pub enum CollectiveArguments<Vector, Chunks, Peers> {
            $($(#[$about])* $collective { $($argument: $kind),* },)*
        }

        impl<V, C, P> CollectiveArguments<V, C, P> {
            /// Return the requested collective.
            pub fn collective(&self) -> Collective {
                match self {
                    $(CollectiveArguments::$collective { .. } => Collective::$collective,)*
                }
            }

            /// Return the reduction operation, if the collective has one.
            pub fn op(&self) -> Option<Op> {
                match self {
                    $(CollectiveArguments::$collective { $($argument),* } => { $(op_of!($argument, $kind);)* })*
                }
                None
            }

            /// Return the same request with converted extents.
            #[inline]
            pub fn with<E: Extents<V, C, P>>(
                self,
                extents: &mut E,
            ) -> CollectiveArguments<E::Vector, E::Chunks, E::Peers> {
                match self {
                    $(CollectiveArguments::$collective { $($argument),* } => CollectiveArguments::$collective {
                        $($argument: with_extent!(extents, $argument, $kind)),*
                    },)*
                }
            }
        }

        /// The `plan` function of an algorithm. The variant determines the collective.
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs)]
        pub enum PlanFunction {
            $($collective(fn(&Group, $(plan_argument!($kind)),*) -> Plan),)*
        }

        impl PlanFunction {
            /// Return the collective of the planned requests.
            pub const fn collective(&self) -> Collective {
                match self {
                    $(PlanFunction::$collective(_) => Collective::$collective,)*
                }
            }

            /// Return a rank's plan for `request`, or `None` if it requests another collective.
            pub(crate) fn plan(&self, group: &Group, request: &PlanRequest) -> Option<Plan> {
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
        /// No rank continues before all ranks have arrived. The token is one byte of scratch.
        Barrier = "barrier" (token: Vector);
        /// The receiver ends with the sender's vector.
        PointToPoint = "point-to-point" (from: usize, to: usize, vector: Vector);
        /// Every rank ends with the combination of the vectors of all ranks up to it.
        Scan = "scan" (vector: Vector, op: Op);
        /// Every rank except the first ends with the combination of the vectors of all lower ranks. The first rank
        /// keeps its own vector.
        Exscan = "exscan" (vector: Vector, op: Op);
        /// `into` of every rank ends with `out` of the rank `distance` before it. Both have the same length.
        Rotate = "rotate" (distance: usize, out: Vector, into: Vector);
        /// Every rank ends with the data that each peer in `into` had for it in `out`. Each peer occurs at most once.
        NeighbourExchange = "neighbour-exchange" (out: Peers, into: Peers);
    }
    uncatalogued {
        /// Every rank ends with the combination of all ranks' rows for the indices it requests. Planned from the index
        /// sets, not by an algorithm of the catalogue.
        SparseReduce = "sparse-reduce";
        /// Every rank ends with the rows of the keys that it owns. Planned from the sizes of the ranks' inputs, not by
        /// an algorithm of the catalogue.
        Regroup = "regroup";
        /// Plans of the caller.
        Plan = "plan";
    }
}

/// A peer, with the span sent to it or received from it.
pub type PeerSpan = (usize, Span);

/// A request with spans as its extents: the input of a planner.
pub type PlanRequest<'a> = CollectiveArguments<Span, &'a [Span], &'a [PeerSpan]>;

/// Conversion of the extents of a request. The methods are called first for the working or input buffer, then for the
/// output buffer, if there is one.
pub trait Extents<V, C, P> {
    #[allow(missing_docs)]
    type Vector;
    #[allow(missing_docs)]
    type Chunks;
    #[allow(missing_docs)]
    type Peers;

    /// Convert a vector.
    fn vector(&mut self, vector: V) -> Self::Vector;
    /// Convert chunks.
    fn chunks(&mut self, chunks: C) -> Self::Chunks;
    /// Convert a list of peers.
    fn peers(&mut self, peers: P) -> Self::Peers;
}

impl Collective {
    /// Whether the collective has a root.
    pub fn has_root(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
    }
}

impl<V, C, P> CollectiveArguments<V, C, P> {
    /// Return the root, if the collective has one.
    pub fn root(&self) -> Option<usize> {
        match *self {
            CollectiveArguments::Broadcast { root, .. }
            | CollectiveArguments::Reduce { root, .. }
            | CollectiveArguments::Gather { root, .. }
            | CollectiveArguments::Scatter { root, .. } => Some(root),
            _ => None,
        }
    }

    /// Whether received data goes to a separate output buffer.
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

impl PlanRequest<'_> {
    /// Return the length of the vector, or of all chunks together, in the rank's working or input buffer, in bytes.
    pub fn length_bytes(&self) -> usize {
        let mut lengths = Lengths::default();
        self.with(&mut lengths);
        lengths.first_bytes.unwrap_or(0)
    }
}

/// Length of the first extent.
#[derive(Default)]
struct Lengths {
    first_bytes: Option<usize>,
}

impl Lengths {
    fn record(&mut self, lengths_bytes: impl Iterator<Item = usize>) {
        self.first_bytes.get_or_insert_with(|| lengths_bytes.sum());
    }
}

impl Extents<Span, &[Span], &[PeerSpan]> for Lengths {
    type Vector = ();
    type Chunks = ();
    type Peers = ();

    fn vector(&mut self, vector: Span) {
        self.record([vector.length_bytes].into_iter());
    }

    fn chunks(&mut self, chunks: &[Span]) {
        self.record(chunks.iter().map(|chunk| chunk.length_bytes));
    }

    fn peers(&mut self, peers: &[PeerSpan]) {
        self.record(peers.iter().map(|(_, span)| span.length_bytes));
    }
}
