//! Keyed data: hashes, strings as columns, tables that number distinct keys, rows by part.

mod hash;
mod ints;
mod partition;
mod scatter;
mod strings;

pub use hash::{hash_int, hash_ints, hash_string, part_of, rehash};
pub use ints::IntTable;
pub use partition::{Partition, RowParts};
pub use scatter::{Staged, is_scattered, scatter};
pub use strings::{BadOffsets, StringTable, Strings};
pub(crate) use strings::{PREFIX_BYTES, prefetch, prefix};
