//! The algorithms: one file each, with a pure function from a group and spans to this rank's [`Plan`](crate::Plan), and
//! with the [`Entry`](crate::Entry) that says what the plans do.
//!
//! This is the one list of them: the [`catalogue`](crate::catalogue) has what stands here, and users, peers and tests
//! have it from there. A new algorithm is a new file and its line in this list.

mod cyclic;
mod levels;
pub(crate) mod tree;

use crate::Entry;

/// Makes a module of each file, and [`ENTRIES`] of what they say.
macro_rules! algorithms {
    ($($(#[$about:meta])* $collective:ident { $($file:ident,)* })*) => {
        $(
            $(#[$about])*
            pub mod $collective {
                $(pub mod $file;)*
            }
        )*

        /// The entries, by collective.
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

    /// Reduce: the root ends with the combination of all vectors; elsewhere the vector is scratch.
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

    /// Allreduce: every rank ends with the combination of all vectors, the same bits on every rank.
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

    /// Reduce-scatter: every rank ends with its chunk of the combination of all vectors; its other chunks are scratch.
    reduce_scatter {
        ring,
        direct,
        halving,
        two_level,
        rank_order,
    }

    /// Gather: the root ends with every rank's chunk. All ranks use the layout of the root; elsewhere than in its own
    /// chunk a rank's buffer is scratch.
    gather {
        direct,
        binomial,
    }

    /// Scatter: every rank ends with its chunk of the root's vector. All ranks use the layout of the root; elsewhere
    /// than in its own chunk a rank's buffer is scratch.
    scatter {
        direct,
        binomial,
    }

    /// Alltoall: every rank ends with the chunk that each rank had for it. Chunks may differ in size or be empty,
    /// unless the algorithm says otherwise.
    ///
    /// The input lies in [`Buffer::MAIN`](crate::Buffer::MAIN), the output in
    /// [`Buffer::OUTPUT`](crate::Buffer::OUTPUT); out chunk `j` of rank `i` is as long as in chunk `i` of rank `j`.
    alltoall {
        direct,
        bruck,
        pairwise,
    }

    /// Barrier: no rank goes on before all have come. The token is one byte of scratch.
    barrier {
        dissemination,
        tree,
        two_level,
    }

    /// Point to point: the receiver ends with the sender's vector.
    point_to_point {
        direct,
    }

    /// Scan: every rank ends with the combination of the vectors of all ranks up to it.
    scan {
        chain,
        recursive_doubling,
        rank_order,
    }

    /// Exscan (exclusive scan): every rank but the first ends with the combination of the vectors of all ranks before
    /// it; the first keeps its own.
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

    /// Neighbour exchange: every rank ends with what each of its neighbours had for it.
    neighbour_exchange {
        direct,
    }
}
