//! All tests of this crate in one program, because each program links the crate again. Cargo.toml lists the tests with
//! a program of their own.

mod common;
mod executor;
mod recorder;
mod replicas;
