//! Exscan (exclusive scan): every rank but the first ends with the combination of the vectors of all ranks before it; the
//! first keeps its own.

pub mod chain;
pub mod recursive_doubling;
