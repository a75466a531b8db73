//! Text: its words counted, its lines searched.
//!
//! [`WordCounts`] takes texts one after the other; [`LineSearch`] gives the lines of a text that match a pattern.
//! Whoever calls them divides text between words, or between lines.

mod blanks;
mod lines;
mod words;

pub use lines::{BadPattern, LineQuery, LineSearch, MatchedLines};
pub use words::WordCounts;
