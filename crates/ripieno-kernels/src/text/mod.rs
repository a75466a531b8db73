//! Text kernels: word counts and line search.
//!
//! [`WordCounts`] processes texts one after the other. [`LineSearch`] returns the lines of a text that match a pattern.
//! Callers divide text between words or between lines.

mod blanks;
mod lines;
mod words;

pub use lines::{BadPattern, LineQuery, LineSearch, MatchedLines};
pub use words::WordCounts;
