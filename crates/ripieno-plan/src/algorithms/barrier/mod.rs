//! Barrier: no rank goes on before all have come. The token is one byte of scratch.

pub mod dissemination;
pub mod tree;
pub mod two_level;
