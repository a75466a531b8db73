//! Text: the words of it counted.

mod blanks;
mod words;

pub use words::WordCounts;
