//! All tests of this crate in one program, because each program links the crate anew. Cargo.toml lists the tests with a
//! program of their own.

mod calling_threads;
mod collectives;
mod common;
mod groups;
mod keyed;
mod keyed_large;
mod packets;
mod places;
mod regroup;
mod regroup_faults;
mod repeated_calls;
mod sparse;
mod sparse_faults;
mod survivors;
