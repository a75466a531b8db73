//! Byte runs: the contiguous bytes at the ends of an operation, in processing order.
//!
//! Without rows an end is one run, its span. With rows each sequence of consecutive rows is a run.

use crate::plan::Operation;
use crate::rows::Rows;
use crate::span::Span;

/// Iterate over the runs that `operation` reads and does not change.
pub(crate) fn read(operation: &Operation) -> impl Iterator<Item = Span> {
    let rows = match operation {
        Operation::Send { rows, .. } | Operation::Copy { rows, .. } => rows.as_ref(),
        _ => None,
    };
    operation.reads().into_iter().flat_map(move |span| byte_runs(span, rows))
}

/// Iterate over the runs that `operation` changes.
pub(crate) fn written(operation: &Operation) -> impl Iterator<Item = Span> {
    let rows = match operation {
        Operation::Reduce { rows, .. } | Operation::Combine { rows, .. } | Operation::Fill { rows, .. } => {
            rows.as_ref()
        }
        _ => None,
    };
    operation.writes().into_iter().flat_map(move |span| byte_runs(span, rows))
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

/// Split two ends of equal length into pairs of equally long runs. The bytes of the first run of a pair move
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

fn byte_runs(span: Span, rows: Option<&Rows>) -> impl Iterator<Item = Span> {
    let single_run = (rows.is_none() && span.length_bytes > 0).then_some(span);
    let row_bytes = rows.map_or(0, Rows::row_bytes);
    let row_run = move |rows: &[u32]| Span {
        start_bytes: span.start_bytes + rows[0] as usize * row_bytes,
        length_bytes: rows.len() * row_bytes,
        ..span
    };
    let row_runs = rows.map_or(&[][..], Rows::numbers).chunk_by(|row, next| row + 1 == *next);
    single_run.into_iter().chain(row_runs.map(row_run))
}

/// Return the rest of a run after its first `passed_bytes`.
fn rest(run: Span, passed_bytes: usize) -> Option<Span> {
    let start_bytes = run.start_bytes + passed_bytes;
    let length_bytes = run.length_bytes - passed_bytes;
    (length_bytes > 0).then_some(Span { start_bytes, length_bytes, ..run })
}
