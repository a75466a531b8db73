//! The tests of this crate share a program, because each program links the crate again.
//! Cargo.toml lists the tests that need a program of their own.

mod cells;
mod common;
mod forces;
mod graph;
mod keyed;
mod kmeans_bounds;
mod kmeans_bytes;
mod kmeans_near;
mod kmeans_pass;
mod kmeans_regions;
mod kmeans_sparse;
mod lines;
mod models;
mod order;
mod pairs;
mod small_kernels;
mod strings;
mod team;
mod words;
