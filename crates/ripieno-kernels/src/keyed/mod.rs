//! Keyed data: hashes, string columns and their order, tables that number distinct keys, and rows grouped by part.

mod hash;
mod ints;
mod murmur;
mod order;
mod partition;
mod scatter;
mod strings;

pub use hash::{hash_int, hash_ints, hash_string, part_of, rehash};
pub use ints::IntTable;
pub use murmur::{FeaturePlace, feature_places};
pub use order::{joined_pieces, order_of_strings};
pub use partition::{Partition, RowParts};
pub use scatter::{StagingBuffer, is_scattered, scatter};
pub use strings::{BadOffsets, StringTable, Strings};
pub(crate) use strings::{PREFIX_BYTES, prefix};
