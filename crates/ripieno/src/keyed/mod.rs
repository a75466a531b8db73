//! Keyed data: rows under keys, equal keys combined.
//!
//! Keys are columns ([`KeyColumn`]), values rows of bytes of one [`KeyedForm`]. An [`Aggregation`] takes rows in many adds and
//! combines those of equal keys as they come; sealed, it is [`Parts`]: blocks of distinct keys, by hash, each with a
//! home rank.

mod aggregation;
mod block;
mod columns;
mod homes;
mod limit;
mod part;
mod parts;
mod regroup;
mod spill;

pub use aggregation::Aggregation;
pub use block::{BlockView, KeyedBlock, KeyedCombine, KeyedForm, PartSize};
pub use columns::{KeyColumn, KeyKind, OwnedKeys};
pub use limit::MemoryLimit;
pub use parts::Parts;
pub use regroup::{Regroup, Regrouped};
pub use ripieno_kernels::keyed::{BadOffsets, Strings};
