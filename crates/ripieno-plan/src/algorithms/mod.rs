//! The algorithms: one file each, a pure function from a group and spans to this rank's [`Plan`](crate::Plan).
//!
//! [`catalogue`](crate::catalogue) lists them all. In the cost formulae `p` is the world size and `n` the bytes of the
//! whole vector (of all chunks together); `alpha`, `beta` and `gamma` are those of [`cost`](crate::cost).

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod broadcast;
mod cyclic;
pub mod exscan;
pub mod gather;
mod levels;
pub mod neighbour_exchange;
pub mod point_to_point;
pub mod reduce;
pub mod reduce_scatter;
pub mod rotate;
pub mod scan;
pub mod scatter;
mod tree;
