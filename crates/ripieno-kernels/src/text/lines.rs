//! Line search: the lines of a text that match a pattern, as `grep` finds them.
//!
//! The pattern is searched in the whole text, so that text without matches is passed at the speed of the search. A match
//! that goes beyond its line is looked for once more in the line alone, and from then on every line is searched alone.
//! Cost: one pass of the `regex` crate, at most two, and one that counts line ends.

use crate::keyed::Strings;
use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::{Regex, RegexBuilder};
use std::fmt;
use std::io::Write;
use std::ops::Range;

/// Which lines are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    /// The pattern is a string to find as it is, not a regular expression.
    pub fixed: bool,
    /// Capitals and small letters are the same.
    pub ignore_case: bool,
    /// Lines that do not match are wanted.
    pub invert: bool,
}

/// A search for lines that match a pattern.
///
/// Lines end with `\n`, which is not part of them; the last one may lack its end. Patterns have the syntax of the
/// `regex` crate; `^` and `$` are the ends of a line.
///
/// ```
/// use ripieno_kernels::text::{LineSearch, Search};
///
/// let search = LineSearch::new("^b", Search::default())?;
/// let found = search.find(b"a b\nbe\nb", usize::MAX);
/// assert_eq!(found.numbers, [1, 2]);
/// assert_eq!(found.lines().iter().collect::<Vec<_>>(), [b"be".as_slice(), b"b"]);
/// # Ok::<(), ripieno_kernels::text::BadPattern>(())
/// ```
#[derive(Clone, Debug)]
pub struct LineSearch {
    pattern: Regex,
    by_line: bool,
    invert: bool,
}

/// A pattern that cannot be searched for.
#[derive(Clone, Debug, PartialEq)]
pub struct BadPattern(regex::Error);

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BadPattern {}

impl LineSearch {
    /// A search for the lines with `pattern`.
    ///
    /// # Errors
    /// The pattern is no regular expression, or needs more than 10 MiB when compiled.
    pub fn new(pattern: &str, search: Search) -> Result<LineSearch, BadPattern> {
        let Search { fixed, ignore_case, invert } = search;
        let by_line = !fixed && may_look_at_ends(pattern);
        let pattern = if fixed { regex::escape(pattern) } else { pattern.to_string() };
        let built = RegexBuilder::new(&pattern).case_insensitive(ignore_case).multi_line(true).build();
        Ok(LineSearch { pattern: built.map_err(BadPattern)?, by_line, invert })
    }

    /// The lines of `text` that are wanted, the first `at_most` of them.
    pub fn find(&self, text: &[u8], at_most: usize) -> Found {
        let mut found = Found { offsets: vec![0], ..Found::default() };
        let (mut number, mut counted) = (0, 0);
        self.for_each(text, at_most, |line| {
            number += line_ends(&text[counted..line.start]);
            counted = line.start;
            found.numbers.push(number);
            found.starts.push(line.start as u64);
            found.data.extend_from_slice(&text[line]);
            found.offsets.push(found.data.len() as i64);
        });
        found.line_count = number + line_ends(&text[counted..]);
        found
    }

    /// How many lines of `text` are wanted, `at_most` of them counted.
    pub fn count(&self, text: &[u8], at_most: usize) -> usize {
        let mut count = 0;
        self.for_each(text, at_most, |_| count += 1);
        count
    }

    /// Calls `take` with every line that is wanted, up to `at_most` of them.
    fn for_each(&self, text: &[u8], at_most: usize, mut take: impl FnMut(Range<usize>)) {
        let mut left = at_most;
        let mut matching = Matching { pattern: &self.pattern, text, by_line: self.by_line };
        let mut from = 0;
        while from < text.len() && left > 0 {
            let next = matching.next_line(from);
            if self.invert {
                let stop = next.as_ref().map_or(text.len(), |line| line.start);
                while from < stop && left > 0 {
                    let end = line_end(text, from);
                    take(from..end);
                    (from, left) = (end + 1, left - 1);
                }
            } else if let Some(line) = next.clone() {
                take(line);
                left -= 1;
            }
            from = next.map_or(text.len(), |line| line.end + 1);
        }
    }
}

/// Whether `pattern` may tell the ends of the text from those of a line, or change what ends are.
fn may_look_at_ends(pattern: &str) -> bool {
    pattern.contains(r"\A") || pattern.contains(r"\z") || pattern.replace("(?:", "").contains("(?")
}

struct Matching<'a> {
    pattern: &'a Regex,
    text: &'a [u8],
    /// Whether the text of a line must be searched alone.
    by_line: bool,
}

impl Matching<'_> {
    /// The next line with a match, at `from`, where a line begins, or after it.
    fn next_line(&mut self, mut from: usize) -> Option<Range<usize>> {
        while from < self.text.len() {
            // Whatever matches in a line alone matches in the text, too, so no line before this place does.
            let place = if self.by_line { from..from } else { self.pattern.find_at(self.text, from)?.range() };
            let start = memrchr(b'\n', &self.text[from..place.start]).map_or(from, |end| from + end + 1);
            if start == self.text.len() {
                return None;
            }
            let line = start..line_end(self.text, start);
            let is_within = !self.by_line && place.end <= line.end;
            if is_within || self.pattern.is_match(&self.text[line.clone()]) {
                return Some(line);
            }
            // Matches beyond lines could be as long as the text, and as many as its lines.
            self.by_line = true;
            from = line.end + 1;
        }
        None
    }
}

/// Where the line that begins at `start` ends.
fn line_end(text: &[u8], start: usize) -> usize {
    memchr(b'\n', &text[start..]).map_or(text.len(), |length| start + length)
}

fn line_ends(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

/// Lines that were found in a text, as columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The number of each line, the first of the text being 0.
    pub numbers: Vec<u64>,
    /// The byte of the text at which each begins.
    pub starts: Vec<u64>,
    /// Where each begins in `data`, and the last ends.
    pub offsets: Vec<i64>,
    /// The lines, without their ends.
    pub data: Vec<u8>,
    /// The line ends of the text, whether lines were found or not.
    pub line_count: u64,
}

impl Found {
    /// The lines.
    pub fn lines(&self) -> Strings<'_> {
        Strings::new(&self.offsets, &self.data).expect("the offsets are those of the lines in the data")
    }

    /// The first `at_most` lines as they are printed: before each `label` and, if asked for, its number and a colon.
    ///
    /// `first_number` is that of the text's first line.
    pub fn printed(&self, label: &[u8], first_number: Option<u64>, at_most: usize) -> Vec<u8> {
        let mut printed = Vec::with_capacity(self.data.len() + self.numbers.len() * (label.len() + 1));
        for (line, number) in self.lines().iter().zip(&self.numbers).take(at_most) {
            printed.extend_from_slice(label);
            if let Some(first) = first_number {
                write!(printed, "{}:", first + number).expect("memory takes whatever is written");
            }
            printed.extend_from_slice(line);
            printed.push(b'\n');
        }
        printed
    }
}
