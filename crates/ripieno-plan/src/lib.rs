//! Plans: the operations of each rank in a collective, as data.
//!
//! A collective algorithm is a pure function from a group, spans and parameters to a [`Plan`]. Executor, checker, cost
//! model and diagrams all read the same plans. This crate has no I/O, clocks, threads or nondeterministic order.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod algorithms;
pub mod catalogue;
pub mod check;
mod choice;
mod fault;
pub mod formula;
mod group;
mod matching;
mod order;
mod ordered;
mod plan;
pub mod regroup;
mod request;
mod rows;
pub mod simulate;
mod span;
pub mod sparse;
pub mod swarm;
pub mod table;
pub mod theory;
mod topology;

pub use catalogue::{Algorithm, Entry, Needs, PlacementUse, Unsuitable};
pub use check::{Promise, PromisedSpan, promises};
pub use choice::{choose, choose_in_rank_order};
pub use fault::{FaultKind, PlanFault};
pub use group::Group;
pub use order::{Order, next_random};
pub use plan::{Constant, Op, Operation, Plan};
pub use request::{Collective, CollectiveArguments, Extents, PeerSpan, PlanFunction, PlanRequest};
pub use rows::Rows;
pub use span::{Buffer, Span};
pub use theory::{Cost, Theory, TheoryCase};
pub use topology::Topology;

/// The page on adding an algorithm. Its code is compiled and run with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adding-an-algorithm.md")]
struct AddingAnAlgorithm;
