//! Allgather: every rank ends with every rank's chunk. Chunks may differ in size or be empty.

pub mod direct;
pub mod ring;
pub mod two_level;
