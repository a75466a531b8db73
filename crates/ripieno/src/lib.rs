//! Ripieno: collectives as data, for whoever writes Rust. The Python package stands on this crate.
//!
//! A [`Communicator`] is one rank's end of a world of ranks.

mod choice;
mod communicator;
mod error;
mod flight;
pub mod measuring;
mod pool;
mod schedules;

pub use choice::Overrides;
pub use communicator::{Communicator, Statistics};
pub use error::Error;
pub use flight::Flight;
pub use pool::{BufferPool, PooledBuffer};
pub use ripieno_net as net;
pub use ripieno_plan::{Algorithm, Collective, Needs, Op, Topology};
pub use ripieno_run::recorder::{Outcome, Record, Wait};
pub use ripieno_run::{Element, Failure, Memory};
