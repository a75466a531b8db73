//! Execution of plans: executor, link trait, typed reductions, frames, flight recorder and membership protocol.
//!
//! This crate uses no sockets and no operating system calls. Time is an argument.

pub mod call;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod executor;
pub mod fabric;
pub mod link;
pub mod membership;
pub mod recorder;
pub mod replicas;
pub mod swarm;
mod words;

pub use call::{Call, CallKind, CollectiveId, DescribedCall, Element, HEADER_BYTES, Header};
pub use executor::{BlockingSection, BufferMemory, Executor, PreparedCall, RunEnd, RunError, RunTraffic, Schedule};
pub use fabric::{Blocking, Fabric, JobFailure, LinkId, LinkInterest, LinkPurpose, Remote, ShrinkError, ShrunkWorld};
pub use link::{Link, LinkError, PairCosts, SendFlow};
pub use replicas::Replicas;
pub use ripieno_plan::Topology;
pub use ripieno_reduce::{self as reduction, rows};
pub use words::copy_words;
