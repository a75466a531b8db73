//! Sparse reductions: every rank contributes rows for some keys and gets the combined rows of the keys it requests.
//!
//! The topology is a nested butterfly with any [`Degrees`]. In each layer a rank exchanges with the members of its
//! group and keeps an equal part of its range of keys. A [`Permutation`] maps indices to keys, so that equal ranges
//! contain about equally many keys.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.

mod bits;
mod butterfly;
mod configurator;
mod degrees;
pub mod density;
pub mod design;
mod encoding;
mod key_set;
mod merge;
mod permutation;
mod planner;
mod routes;
mod row_map;
pub mod sets;
pub mod team;

pub use butterfly::{Butterfly, Layer};
pub use configurator::{
    Configurator, DENSE_ABOVE, DownMaps, EXAMPLE_COUNT, MalformedKeySets, MissingKeys, fit_row_numbers,
};
pub use degrees::{Degrees, InvalidDegrees};
pub use permutation::Permutation;
pub use routes::{Routes, Volume};
pub use row_map::RowMap;
