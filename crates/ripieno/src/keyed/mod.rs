//! Keyed data: rows under keys, with equal keys combined.
//!
//! Keys are columns ([`KeyColumn`]); values are rows of bytes of one [`KeyedSchema`]. An [`Aggregation`] accepts rows
//! in many adds and combines rows of equal keys as they arrive. [`Aggregation::seal`] returns [`Parts`]: blocks of
//! distinct keys, partitioned by hash, each owned by a rank.

mod aggregation;
mod block;
mod columns;
mod limit;
mod owners;
mod part;
mod parts;
mod regroup;
mod spill;

pub use aggregation::Aggregation;
pub use block::{BlockView, KeyedBlock, KeyedCombine, KeyedSchema, PartSize};
pub use columns::{KeyColumn, KeyKind, OwnedKeys};
pub use limit::MemoryLimit;
pub use parts::Parts;
pub use regroup::{Regroup, Regrouped};
pub use ripieno_kernels::keyed::{BadOffsets, Strings};
