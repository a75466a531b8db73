//! Barrier: no rank goes on before all have come.

pub mod dissemination;
pub mod two_level;
