//! Collective algorithms, one file each. A file has a pure function from a group and spans to this rank's
//! [`Plan`](crate::Plan), and an [`Entry`](crate::Entry) with the properties of these plans.
//!
//! The [`catalogue`](crate::catalogue) is built from this list. A new algorithm needs a new file and a line in the
//! list.

mod cyclic;
mod levels;
pub(crate) mod tree;

use crate::Entry;

/// Declare a module per file, and [`ENTRIES`] with their entries.
macro_rules! algorithms {
    ($($(#[$about:meta])* $collective:ident { $($file:ident,)* })*) => {
        $(
            $(#[$about])*
            pub mod $collective {
                $(pub mod $file;)*
            }
        )*

        /// All entries by collective.
        pub(crate) const ENTRIES: &[Entry] = &[$($($collective::$file::ENTRY),*),*];
    };
}

algorithms! {
    /// Broadcast: every rank ends with the root's vector.
    broadcast {
        flat,
        binomial,
        scatter_allgather,
        chain,
        knomial,
        binary,
        double_tree,
        two_level,
        split_stream,
    }

    /// Reduce: the root ends with the combination of all vectors. On other ranks the vector is scratch.
    reduce {
        flat,
        binomial,
        chain,
        knomial,
        binary,
        double_tree,
        reduce_scatter_gather,
        two_level,
        rank_order,
    }

    /// Allreduce: every rank ends with the combination of all vectors, with the same bits on every rank.
    allreduce {
        bidirectional_exchange,
        regroup_allgather,
        ring,
        halving_doubling,
        tree,
        one_round,
        double_tree,
        recursive_multiplying,
        two_level,
        rank_order,
    }

    /// Allgather: every rank ends with every rank's chunk. Chunks may differ in size or be empty.
    allgather {
        ring,
        direct,
        bruck,
        recursive_doubling,
        neighbour_exchange,
        two_level,
    }

    /// Reduce-scatter: every rank ends with its chunk of the combination of all vectors. Its other chunks are scratch.
    reduce_scatter {
        ring,
        direct,
        halving,
        two_level,
        rank_order,
    }

    /// Gather: the root ends with every rank's chunk. All ranks use the root's layout. On other ranks everything except
    /// the rank's own chunk is scratch.
    gather {
        direct,
        binomial,
    }

    /// Scatter: every rank ends with its chunk of the root's vector. All ranks use the root's layout. On other ranks
    /// everything except the rank's own chunk is scratch.
    scatter {
        direct,
        binomial,
    }

    /// Alltoall: every rank ends with the chunk that each rank had for it. Chunks may differ in size or be empty,
    /// unless the algorithm requires equal chunks.
    ///
    /// The input is in [`Buffer::MAIN`](crate::Buffer::MAIN), the output in [`Buffer::OUTPUT`](crate::Buffer::OUTPUT).
    /// Out chunk `j` of rank `i` is as long as in chunk `i` of rank `j`.
    alltoall {
        direct,
        bruck,
        pairwise,
    }

    /// Barrier: no rank continues before all ranks have arrived. The token is one byte of scratch.
    barrier {
        dissemination,
        tree,
        two_level,
    }

    /// Point to point: the receiver ends with the sender's vector.
    point_to_point {
        direct,
    }

    /// Scan: every rank ends with the combination of its own vector and the vectors of all lower ranks.
    scan {
        chain,
        recursive_doubling,
        rank_order,
    }

    /// Exscan (exclusive scan): every rank except the first ends with the combination of the vectors of all lower
    /// ranks. The first rank keeps its own vector.
    exscan {
        chain,
        recursive_doubling,
        rank_order,
    }

    /// Rotate: every rank ends with the block of the rank a given distance before it. Blocks may differ in size or be
    /// empty.
    rotate {
        direct,
    }

    /// Neighbor exchange: every rank ends with the data that each of its neighbors had for it.
    neighbour_exchange {
        direct,
    }
}
