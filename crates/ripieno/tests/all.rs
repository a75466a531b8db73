//! Most tests of this crate in one program, because linking each program takes long. Cargo.toml lists the tests that
//! have their own program.

mod calling_threads;
mod collectives;
mod common;
mod groups;
mod keyed;
mod keyed_large;
mod kmeans;
mod packets;
mod plans;
mod regroup;
mod regroup_faults;
mod repeated_calls;
mod sparse;
mod sparse_faults;
mod survivors;
mod topologies;
