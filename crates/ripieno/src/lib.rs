//! Ripieno: collectives as data, for whoever writes Rust. The Python package stands on this crate.
//!
//! A [`Communicator`] is one rank's end of a world of ranks.

mod choice;
mod communicator;
mod core;
mod elements;
mod error;
mod flight;
mod given;
mod handle;
pub mod keyed;
pub mod measuring;
pub mod packets;
mod pool;
mod replicate;
mod schedules;
mod seat;
pub mod sparse;
mod statistics;
mod task;

pub use choice::Overrides;
pub use communicator::Communicator;
pub use elements::{Elements, Shape};
pub use error::Error;
pub use flight::Flight;
pub use handle::{Handle, Lasting};
pub use pool::{BufferPool, PooledBuffer};
pub use ripieno_net as net;
pub use ripieno_plan::sparse::{Degrees, density, design};
pub use ripieno_plan::{Algorithm, Collective, Needs, Op, Topology};
pub use ripieno_run::recorder::{Outcome, Record, Wait};
pub use ripieno_run::{Element, Failure, Memory};
pub use statistics::Statistics;
pub use task::Task;
