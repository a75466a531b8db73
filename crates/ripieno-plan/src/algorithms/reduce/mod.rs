//! Reduce: the root ends with the combination of all vectors; elsewhere the vector is scratch.

pub mod binomial;
pub mod chain;
pub mod two_level;
