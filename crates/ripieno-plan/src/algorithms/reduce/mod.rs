//! Reduce: the root ends with the combination of all vectors; elsewhere the vector is scratch.

pub mod binary;
pub mod binomial;
pub mod chain;
pub mod double_tree;
pub mod knomial;
pub mod reduce_scatter_gather;
pub mod two_level;
