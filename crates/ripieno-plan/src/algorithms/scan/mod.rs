//! Scan: every rank ends with the combination of the vectors of all ranks up to it.

pub mod chain;
pub mod recursive_doubling;
