//! How ranks reach each other: links, meeting, authentication and the watch over who is alive.
//!
//! The only crate that meets the operating system. Knows no algorithms.

pub mod config;
pub mod endpoint;
pub mod error;
pub mod exchange;
pub mod links;

pub use config::{Config, Links, Ports, Token};
pub use endpoint::Endpoint;
pub use error::NetError;
pub use exchange::Exchange;
