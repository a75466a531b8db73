//! Ripieno: collectives as data, for Rust programs. The Python package is built on this crate.
//!
//! A [`Communicator`] is one rank's handle to a world of ranks.

mod agree;
mod biased_lock;
pub mod block_file;
pub mod broadcasts;
mod call_cache;
mod choice;
mod communicator;
mod communicator_state;
mod core;
mod elements;
mod error;
mod flight;
pub mod frame;
mod functions;
mod groups;
mod handle;
pub mod keyed;
pub mod kmeans;
pub mod lightgbm;
mod lock;
pub mod measuring;
mod number_bytes;
mod owned_buffers;
pub mod packets;
pub mod plans;
mod pool;
mod preferred;
mod replicate;
mod result_slot;
mod runtime;
mod schedules;
pub mod simulation;
pub mod sparse;
mod statistics;
mod survivors;
mod task;
mod uncatalogued;

pub use choice::Overrides;
pub use communicator::Communicator;
pub use elements::{ElementShape, ElementType};
pub use error::Error;
pub use flight::FlightRecorder;
pub use functions::FunctionError;
pub use handle::Handle;
pub use owned_buffers::{NO_MEMORY, OwnedBuffers};
pub use pool::{BufferPool, PooledBuffer};
pub use ripieno_net as net;
pub use ripieno_plan::sparse::{Degrees, density, design};
pub use ripieno_plan::{Algorithm, Collective, Needs, Op, Topology};
pub use ripieno_run::recorder::{
    AlgorithmUsage, CollectiveOutcome, CollectiveRecord, CurrentCall, Reading, StallInterval,
};
pub use ripieno_run::reduction::{Function, arg_reduction};
pub use ripieno_run::{BufferMemory, Element, JobFailure, PairCosts};
pub use statistics::Statistics;
pub use survivors::Survivors;
pub use task::{CollectiveTask, WholeBuffer};
