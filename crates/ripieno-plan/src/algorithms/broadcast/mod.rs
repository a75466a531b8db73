//! Broadcast: every rank ends with the root's vector.

pub mod binomial;
pub mod chain;
pub mod flat;
pub mod scatter_allgather;
pub mod two_level;
