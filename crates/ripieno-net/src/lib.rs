//! How ranks reach each other: links, meeting, authentication and the watch over who is alive.
//!
//! The only crate that meets the operating system. Knows no algorithms.

mod auth;
mod card;
pub mod config;
pub mod endpoint;
pub mod error;
pub mod exchange;
pub mod host;
pub mod links;
mod listen;
mod monitor;
pub mod probe;
mod reach;
mod stream;
pub mod threads;

pub use card::VERSION;
pub use config::{Config, Links, MAX_WORLD_SIZE, Ports, Token};
pub use endpoint::{Alarm, Endpoint};
pub use error::NetError;
pub use exchange::Exchange;
pub use threads::ThreadFabric;
