//! Broadcast: every rank ends with the root's vector.

pub mod binary;
pub mod binomial;
pub mod chain;
pub mod double_tree;
pub mod flat;
pub mod knomial;
pub mod scatter_allgather;
pub mod two_level;
