//! What holds of plans. One program: each more would compile and link what all of them share.

#[path = "../common/mod.rs"]
mod common;

mod any_sizes;
mod costs;
mod faults;
mod floors;
mod index_map_faults;
mod index_map_laws;
mod index_maps;
mod laws;
mod orders;
mod papers;
mod regroup;
mod rendezvous;
mod sparse;
mod sparse_plans;
mod sparse_values;
mod sparse_volumes;
mod two_levels;
