//! Line search: the lines of a text that match a pattern, as in `grep`.
//!
//! The pattern is searched in the whole text, so text without matches is processed at the speed of the search. First
//! the pattern is rewritten so that no match contains a line end, because no line contains one. The search does not
//! look beyond the line of a match.
//! Cost: one pass of the `regex` crate's engine, and one that counts line ends.

use crate::keyed::Strings;
use memchr::{memchr, memchr_iter, memrchr};
use regex_automata::Input;
use regex_automata::meta::{Config, Regex};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Capture, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange};
use regex_syntax::hir::{Hir, HirKind, Look, Repetition};
use std::fmt;
use std::io::Write;
use std::ops::Range;

/// Memory limit of a compiled pattern in bytes.
const MAX_COMPILED_BYTES: usize = 10 << 20;

/// Options of a line search.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineQuery {
    /// Whether the pattern is a literal string instead of a regular expression.
    pub fixed: bool,
    /// Whether to ignore case.
    pub ignore_case: bool,
    /// Whether to select the lines that do not match.
    pub invert: bool,
}

/// A search for lines that match a pattern.
///
/// Lines end with `\n`, which is not part of the line; the last line end may be missing. Patterns have the syntax of
/// the `regex` crate without the Unicode classes of ages and breaks; `^` and `$` are the ends of a line.
///
/// ```
/// use ripieno_kernels::text::{LineQuery, LineSearch};
///
/// let search = LineSearch::new("^b", LineQuery::default())?;
/// let found = search.find(b"a b\nbe\nb", usize::MAX);
/// assert_eq!(found.numbers, [1, 2]);
/// assert_eq!(found.lines().iter().collect::<Vec<_>>(), [b"be".as_slice(), b"b"]);
/// # Ok::<(), ripieno_kernels::text::BadPattern>(())
/// ```
#[derive(Clone, Debug)]
pub struct LineSearch {
    pattern: Regex,
    /// Whether every line must be searched separately.
    by_line: bool,
    invert: bool,
}

/// Error: an invalid pattern. Its text is one sentence with reason and position.
#[derive(Clone, Debug, PartialEq)]
pub struct BadPattern(String);

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadPattern {}

impl From<regex_syntax::Error> for BadPattern {
    fn from(error: regex_syntax::Error) -> BadPattern {
        let (reason, place) = match &error {
            regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span().start),
            regex_syntax::Error::Translate(error) => (error.kind().to_string(), error.span().start),
            _ => return BadPattern(error.to_string()),
        };
        let line = if place.line > 1 { format!(" of line {}", place.line) } else { String::new() };
        BadPattern(format!("{reason}, at character {}{line}", place.column))
    }
}

impl LineSearch {
    /// Create a search for the lines that match `pattern`.
    ///
    /// # Errors
    /// If the pattern is not a regular expression, or needs more than 10 MiB when compiled.
    pub fn new(pattern: &str, search: LineQuery) -> Result<LineSearch, BadPattern> {
        let LineQuery { fixed, ignore_case, invert } = search;
        let pattern = if fixed { regex_syntax::escape(pattern) } else { pattern.to_string() };
        let mut parser = ParserBuilder::new().utf8(false).multi_line(true).case_insensitive(ignore_case).build();
        let parsed = within_lines(&parser.parse(&pattern)?);
        // Between a carriage return and a line feed these assertions do not distinguish the end of a line from its
        // inside.
        let looks = parsed.properties().look_set();
        let by_line = looks.contains(Look::StartCRLF) || looks.contains(Look::EndCRLF);
        let pattern = Regex::builder()
            .configure(Config::new().utf8_empty(false).nfa_size_limit(Some(MAX_COMPILED_BYTES)))
            .build_from_hir(&parsed)
            .map_err(|error| match error.size_limit() {
                Some(limit) => BadPattern(format!("it needs more than {limit} bytes when compiled")),
                None => BadPattern(error.to_string()),
            })?;
        Ok(LineSearch { pattern, by_line, invert })
    }

    /// Return the first `limit` selected lines of `text`.
    pub fn find(&self, text: &[u8], limit: usize) -> MatchedLines {
        let mut found = MatchedLines { offsets: vec![0], ..MatchedLines::default() };
        let (mut number, mut counted) = (0, 0);
        self.for_each(text, limit, |line| {
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

    /// Return the number of selected lines of `text`, up to `limit`.
    pub fn count(&self, text: &[u8], limit: usize) -> usize {
        let mut count = 0;
        self.for_each(text, limit, |_| count += 1);
        count
    }

    /// Call `on_line` with every selected line, up to `limit` of them.
    fn for_each(&self, text: &[u8], limit: usize, mut on_line: impl FnMut(Range<usize>)) {
        let mut remaining = limit;
        let mut from = 0;
        while from < text.len() && remaining > 0 {
            let next = self.next_line(text, from);
            if self.invert {
                let stop = next.as_ref().map_or(text.len(), |line| line.start);
                while from < stop && remaining > 0 {
                    let end = line_end(text, from);
                    on_line(from..end);
                    (from, remaining) = (end + 1, remaining - 1);
                }
            } else if let Some(line) = next.clone() {
                on_line(line);
                remaining -= 1;
            }
            from = next.map_or(text.len(), |line| line.end + 1);
        }
    }

    /// Return the next line of `text` with a match. `from` must be the start of a line.
    fn next_line(&self, text: &[u8], mut from: usize) -> Option<Range<usize>> {
        if self.by_line {
            while from < text.len() {
                let line = from..line_end(text, from);
                if self.pattern.is_match(&text[line.clone()]) {
                    return Some(line);
                }
                from = line.end + 1;
            }
            return None;
        }
        // No match contains a line end, so the match that ends first is in the first line with a match.
        let found = self.pattern.search_half(&Input::new(text).range(from..).earliest(true))?;
        let start = memrchr(b'\n', &text[from..found.offset()]).map_or(from, |end| from + end + 1);
        (start < text.len()).then(|| start..line_end(text, start))
    }
}

/// Rewrite a pattern so that it matches in a text of lines exactly the matches of `pattern` in single lines.
fn within_lines(pattern: &Hir) -> Hir {
    let all = |parts: &[Hir]| parts.iter().map(within_lines).collect();
    match pattern.kind() {
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => Hir::fail(),
        HirKind::Class(Class::Unicode(class)) => {
            let mut class = class.clone();
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(class)) => {
            let mut class = class.clone();
            class.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Look(Look::Start) => Hir::look(Look::StartLF),
        HirKind::Look(Look::End) => Hir::look(Look::EndLF),
        HirKind::Repetition(repeated) => {
            Hir::repetition(Repetition { sub: Box::new(within_lines(&repeated.sub)), ..repeated.clone() })
        }
        HirKind::Capture(Capture { sub, .. }) => within_lines(sub),
        HirKind::Concat(parts) => Hir::concat(all(parts)),
        HirKind::Alternation(parts) => Hir::alternation(all(parts)),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => pattern.clone(),
    }
}

/// Return the end of the line that starts at `start`.
fn line_end(text: &[u8], start: usize) -> usize {
    memchr(b'\n', &text[start..]).map_or(text.len(), |length| start + length)
}

fn line_ends(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

/// Matched lines of a text, as columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchedLines {
    /// The number of each line, starting at 0 for the text's first line.
    pub numbers: Vec<u64>,
    /// Offset of each line in the text, in bytes.
    pub starts: Vec<u64>,
    /// Start of each line in `data`, and the end of the last one.
    pub offsets: Vec<i64>,
    /// The lines without their line ends.
    pub data: Vec<u8>,
    /// Number of line ends in the text, independent of matches.
    pub line_count: u64,
}

impl MatchedLines {
    /// Return the lines.
    pub fn lines(&self) -> Strings<'_> {
        Strings::new(&self.offsets, &self.data).expect("the offsets delimit lines in the data")
    }

    /// Return the first `limit` lines in printed form: each with the prefix `label` and, if requested, its number and
    /// a colon.
    ///
    /// `first_number` is the number of the text's first line.
    pub fn printed(&self, label: &[u8], first_number: Option<u64>, limit: usize) -> Vec<u8> {
        let mut printed = Vec::with_capacity(self.data.len() + self.numbers.len() * (label.len() + 1));
        for (line, number) in self.lines().iter().zip(&self.numbers).take(limit) {
            printed.extend_from_slice(label);
            if let Some(first) = first_number {
                write!(printed, "{}:", first + number).expect("writes to memory do not fail");
            }
            printed.extend_from_slice(line);
            printed.push(b'\n');
        }
        printed
    }
}
