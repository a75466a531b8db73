//! Alltoall: every rank ends with the chunk that each rank had for it. Chunks may differ in size or be empty, unless the
//! algorithm says otherwise.
//!
//! The input lies in [`Buffer::MAIN`](crate::Buffer::MAIN), the output in [`Buffer::OUTPUT`](crate::Buffer::OUTPUT); out
//! chunk `j` of rank `i` is as long as in chunk `i` of rank `j`.

pub mod bruck;
pub mod direct;
pub mod pairwise;
