//! Parser of edges in text form: a byte loop over lines without copies and without backtracking.
//!
//! Lines are `source target`, `source target weight`, or lists `source<TAB>target,target,…`; a tab without a following
//! field is an empty list. Fields behind a weight are skipped, such as the times of KONECT. networkx writes attributes:
//! `source target {}` or `source target {'weight': 3.5}`. Empty lines and lines that start with `#` or `%` are skipped.
//! Lines end with LF, CR LF or CR.
//! Cost: a few instructions per byte.

use std::fmt;

/// The largest vertex id: 2^62 - 1.
pub const LARGEST_ID: i64 = (1 << 62) - 1;

/// Meaning of a third field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThirdField {
    /// An error.
    Rejected,
    /// The field and all following ones are skipped.
    Ignored,
    /// The weight of the edge, which is required. All following fields are skipped.
    Weight,
}

/// Edges as columns.
#[derive(Debug, Default, PartialEq)]
pub struct EdgeColumns {
    /// Source of each edge.
    pub sources: Vec<i64>,
    /// Target of each edge.
    pub targets: Vec<i64>,
    /// Weight of each edge; empty for a format without weights.
    pub weights: Vec<f64>,
    /// Vertices with an empty list of targets.
    pub lone: Vec<i64>,
}

/// Error: a line is not an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedLine {
    /// Offset of the line in bytes.
    pub offset: usize,
    /// The reason.
    pub reason: Reason,
}

/// Reasons for rejecting a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The line ends before the last required field.
    TooFewFields,
    /// The line has a third field of unspecified meaning.
    ThirdField,
    /// An id contains other characters than digits.
    NotAnId,
    /// An id has a minus sign.
    NegativeId,
    /// An id is above [`LARGEST_ID`].
    IdTooLarge,
    /// A weight is not a finite number.
    NotAWeight,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::TooFewFields => "too few fields for an edge",
            Reason::ThirdField => "a third field: pass weighted=True if it is a weight, else weighted=False",
            Reason::NotAnId => "expected a vertex id, a whole number",
            Reason::NegativeId => "a negative vertex id: ids are whole numbers from 0",
            Reason::IdTooLarge => "a vertex id above 4611686018427387903, the largest supported one",
            Reason::NotAWeight => "expected a finite number as weight",
        })
    }
}

/// Parse the edges of `text`, which contains whole lines. The last line end may be missing.
///
/// # Errors
/// The first line that is not an edge.
pub fn parse_edges(text: &[u8], third: ThirdField) -> Result<EdgeColumns, MalformedLine> {
    let mut edges = EdgeColumns::default();
    let mut cursor = TextCursor { text, at: 0 };
    loop {
        cursor.skip_blanks();
        let offset = cursor.at;
        match cursor.peek() {
            None => return Ok(edges),
            Some(b'\n' | b'\r') => cursor.at += 1,
            Some(b'#' | b'%') => cursor.skip_line(),
            Some(_) => cursor.edges(&mut edges, third).map_err(|reason| MalformedLine { offset, reason })?,
        }
    }
}

/// A position in the text.
struct TextCursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl TextCursor<'_> {
    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn at_line_end(&self) -> bool {
        matches!(self.peek(), None | Some(b'\n' | b'\r'))
    }

    /// Skip blanks. Return whether a tab was among them.
    #[inline(always)]
    fn skip_blanks(&mut self) -> bool {
        let mut tab = false;
        while let Some(byte @ (b' ' | b'\t')) = self.peek() {
            tab |= byte == b'\t';
            self.at += 1;
        }
        tab
    }

    fn skip_line(&mut self) {
        while !self.at_line_end() {
            self.at += 1;
        }
    }

    /// Parse a line of fields separated by blanks.
    #[inline(always)]
    fn edges(&mut self, edges: &mut EdgeColumns, third: ThirdField) -> Result<(), Reason> {
        let source = self.id()?;
        let begin = self.at;
        let tab = self.skip_blanks();
        if self.at_line_end() {
            edges.lone.push(source);
            return if tab { Ok(()) } else { Err(Reason::TooFewFields) };
        }
        if self.at == begin {
            return Err(Reason::NotAnId);
        }
        loop {
            edges.sources.push(source);
            edges.targets.push(self.id()?);
            if self.peek() != Some(b',') {
                break;
            }
            self.at += 1;
            self.skip_blanks();
            // Many programs also write a comma after the last target.
            if self.at_line_end() {
                break;
            }
        }
        let begin = self.at;
        self.skip_blanks();
        match third {
            ThirdField::Weight if self.at == begin && !self.at_line_end() => return Err(Reason::NotAnId),
            ThirdField::Weight => {
                edges.weights.push(self.weight()?);
                self.skip_line();
            }
            ThirdField::Ignored if self.at > begin => self.skip_line(),
            ThirdField::Rejected if self.at > begin && self.text[self.at..].starts_with(b"{}") => self.at += 2,
            _ => {}
        }
        self.skip_blanks();
        match self.at_line_end() {
            true if edges.weights.is_empty() || edges.weights.len() == edges.sources.len() => Ok(()),
            true => Err(Reason::NotAWeight),
            false if self.at == begin => Err(Reason::NotAnId),
            false => Err(Reason::ThirdField),
        }
    }

    #[inline(always)]
    fn id(&mut self) -> Result<i64, Reason> {
        const DIGITS: usize = 19;
        let begin = self.at;
        let mut value = 0u64;
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.at += 1;
        }
        // Nineteen digits fit into 64 bits.
        match self.at - begin {
            0 => Err(if self.peek() == Some(b'-') { Reason::NegativeId } else { Reason::NotAnId }),
            1..=DIGITS if value <= LARGEST_ID as u64 => Ok(value as i64),
            _ => Err(Reason::IdTooLarge),
        }
    }

    fn weight(&mut self) -> Result<f64, Reason> {
        const KEY: &[u8] = b"'weight': ";
        let has_attributes = self.peek() == Some(b'{');
        while has_attributes && !self.text[self.at..].starts_with(KEY) {
            if self.at_line_end() {
                return Err(Reason::NotAWeight);
            }
            self.at += 1;
        }
        self.at += if has_attributes { KEY.len() } else { 0 };
        let begin = self.at;
        let ends =
            |byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n') || (has_attributes && matches!(byte, b',' | b'}'));
        while self.peek().is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
        let field = str::from_utf8(&self.text[begin..self.at]).map_err(|_| Reason::NotAWeight)?;
        field.parse().ok().filter(|weight: &f64| weight.is_finite()).ok_or(Reason::NotAWeight)
    }
}
