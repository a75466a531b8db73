//! Running plans: the executor, the link trait, typed reductions, frames and the membership protocol.
//!
//! Knows no sockets and no operating system; time is an argument.

pub mod link;

pub use link::{Link, LinkError};
