//! Plans: what each rank does in a collective, as data.
//!
//! A collective algorithm is a pure function from a group, spans and parameters to a [`Plan`]; executor, checker, cost
//! and pictures all read the same plans. No I/O, no clock, no thread, no random order here.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod algorithms;
pub mod catalogue;
mod choice;
mod group;
mod plan;
mod request;
mod span;

pub use catalogue::Algorithm;
pub use choice::choose;
pub use group::Group;
pub use plan::{Op, Operation, Plan};
pub use request::{Collective, Request};
pub use span::{Buffer, Span};
