//! Stretches: the byte sequences at the ends of an operation, in processing order.
//!
//! Without rows an end is one stretch, its span. With rows each run of consecutive rows is a stretch.

use crate::plan::Operation;
use crate::rows::Rows;
use crate::span::Span;

/// Iterate over the stretches that `operation` reads and does not change.
pub(crate) fn read(operation: &Operation) -> impl Iterator<Item = Span> {
    let rows = match operation {
        Operation::Send { rows, .. } | Operation::Copy { rows, .. } => rows.as_ref(),
        _ => None,
    };
    operation.reads().into_iter().flat_map(move |span| stretches(span, rows))
}

/// Iterate over the stretches that `operation` changes.
pub(crate) fn written(operation: &Operation) -> impl Iterator<Item = Span> {
    let rows = match operation {
        Operation::Reduce { rows, .. } | Operation::Combine { rows, .. } | Operation::Fill { rows, .. } => {
            rows.as_ref()
        }
        _ => None,
    };
    operation.writes().into_iter().flat_map(move |span| stretches(span, rows))
}

/// Return the rows of `operation` and the span that contains them, if it has rows.
pub(crate) fn selected_rows(operation: &Operation) -> Option<(Span, &Rows)> {
    let span = match *operation {
        Operation::Send { span, .. } | Operation::Reduce { span, .. } | Operation::Fill { span, .. } => span,
        Operation::Copy { from, .. } => from,
        Operation::Combine { to, .. } => to,
        Operation::Receive { .. } => return None,
    };
    operation.rows().map(|rows| (span, rows))
}

/// Split two ends of equal length into pairs of equally long stretches. The bytes of the first stretch of a pair move
/// to the second.
pub(crate) fn pairs(
    mut from: impl Iterator<Item = Span>,
    mut to: impl Iterator<Item = Span>,
) -> impl Iterator<Item = (Span, Span)> {
    let (mut source, mut target) = (from.next(), to.next());
    core::iter::from_fn(move || {
        let (left, right) = source.zip(target)?;
        let length_bytes = left.length_bytes.min(right.length_bytes);
        source = rest(left, length_bytes).or_else(|| from.next());
        target = rest(right, length_bytes).or_else(|| to.next());
        Some((Span { length_bytes, ..left }, Span { length_bytes, ..right }))
    })
}

fn stretches(span: Span, rows: Option<&Rows>) -> impl Iterator<Item = Span> {
    let whole = (rows.is_none() && span.length_bytes > 0).then_some(span);
    let row_bytes = rows.map_or(0, Rows::row_bytes);
    let run = move |run: &[u32]| Span {
        start_bytes: span.start_bytes + run[0] as usize * row_bytes,
        length_bytes: run.len() * row_bytes,
        ..span
    };
    let runs = rows.map_or(&[][..], Rows::numbers).chunk_by(|row, next| row + 1 == *next);
    whole.into_iter().chain(runs.map(run))
}

/// Return the rest of a stretch after its first `passed_bytes`.
fn rest(stretch: Span, passed_bytes: usize) -> Option<Span> {
    let start_bytes = stretch.start_bytes + passed_bytes;
    let length_bytes = stretch.length_bytes - passed_bytes;
    (length_bytes > 0).then_some(Span { start_bytes, length_bytes, ..stretch })
}
