//! Connects ranks: links, rendezvous, authentication and failure detection.
//!
//! This is the only crate that uses the operating system. It contains no algorithms.

mod acceptor;
mod auth;
pub mod config;
mod connector;
pub mod endpoint;
pub mod error;
pub mod exchange;
mod fences;
pub mod host;
pub mod introduction;
pub mod links;
mod listeners;
mod liveness_probes;
pub mod mesh;
mod monitor;
mod peer_address;
pub mod probe;
mod shortage;
mod stream;
pub mod threads;
pub mod tls;

pub use config::{Config, Credentials, Encryption, LinkPolicy, MAKE_TOKEN, MAX_WORLD_SIZE, Ports, Token};
pub use endpoint::{Endpoint, FailureHandle};
pub use error::NetError;
pub use exchange::Exchange;
pub use fences::{can_fence_threads, fence_threads};
pub use peer_address::VERSION;
pub use threads::ThreadFabric;
