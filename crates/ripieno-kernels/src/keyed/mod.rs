//! Keyed data: strings as columns, tables that number distinct keys.

mod strings;

pub use strings::{BadOffsets, StringTable, Strings};
