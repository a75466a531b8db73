//! Allgather: every rank ends with every rank's chunk. Chunks may differ in size or be empty.

pub mod bruck;
pub mod direct;
pub mod neighbour_exchange;
pub mod recursive_doubling;
pub mod ring;
pub mod two_level;
