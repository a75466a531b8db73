//! Regrouping: rows are sent in waves to the ranks that own their keys.
//!
//! Keys are hashed to parts, and every part has an owner: [`hashed_owners`], or [`balanced_owners`] for parts of very
//! different sizes. [`Waves`] divides each rank's parts into ranges that fit its memory. Each wave is one [`plan`]:
//! small [`ExchangeBlocks`] are sent immediately, and large ones are pulled by their receiver, with a limit on
//! concurrent transfers.

mod exchange;
mod owners;
mod rounds;
mod waves;

pub use exchange::{ExchangeBlocks, plan};
pub use owners::{balanced_owners, hashed_owners, loads};
pub use waves::Waves;
