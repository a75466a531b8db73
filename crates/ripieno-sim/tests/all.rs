//! All tests of this crate in one program, because each program links the crate again. Cargo.toml lists the tests with
//! a program of their own.

mod clusters;
mod oracles;
mod sparse;
mod symmetry;
