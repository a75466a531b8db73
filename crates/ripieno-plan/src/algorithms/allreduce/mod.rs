//! Allreduce: every rank ends with the combination of all vectors, the same bits on every rank.

pub mod bidirectional_exchange;
pub mod regroup_allgather;
pub mod ring;
pub mod two_level;
