//! Reduce-scatter: every rank ends with its chunk of the combination of all vectors; its other chunks are scratch.

pub mod direct;
pub mod halving;
pub mod ring;
pub mod two_level;
