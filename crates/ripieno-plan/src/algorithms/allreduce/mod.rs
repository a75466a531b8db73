//! Allreduce: every rank ends with the combination of all vectors, the same bits on every rank.

pub mod bidirectional_exchange;
pub mod double_tree;
pub mod halving_doubling;
pub mod one_round;
pub mod regroup_allgather;
pub mod ring;
pub mod tree;
pub mod two_level;
