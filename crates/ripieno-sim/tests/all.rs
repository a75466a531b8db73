//! The tests of this crate share a program, because each program links the crate anew.
//! Cargo.toml lists the tests that need a program of their own.

mod clusters;
mod oracles;
mod sparse;
