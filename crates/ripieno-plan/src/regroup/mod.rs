//! Regroup: rows go to the ranks at which their keys are at home, in waves.
//!
//! Keys are hashed to parts, and every part has a home: [`hashed_homes`], or [`balanced_homes`] where parts differ
//! much. [`Waves`] cuts the parts of every rank into ranges that fit its memory; a wave is one [`plan`], in which small
//! [`ExchangeBlocks`] are sent at once and large ones pulled by their receiver, a bounded number at a time.

mod exchange;
mod homes;
mod rounds;
mod waves;

pub use exchange::{ExchangeBlocks, plan};
pub use homes::{balanced_homes, hashed_homes, loads};
pub use waves::Waves;
