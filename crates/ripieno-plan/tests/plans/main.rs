//! Tests of plans, in one program: each further program would compile and link the shared modules again.

#[path = "../common/mod.rs"]
mod common;

mod any_sizes;
mod costs;
mod faults;
mod index_map_faults;
mod index_map_laws;
mod index_maps;
mod laws;
mod layers;
mod orders;
mod papers;
mod regroup;
mod rendezvous;
mod sparse;
mod sparse_plans;
mod sparse_values;
mod sparse_volumes;
mod two_levels;
