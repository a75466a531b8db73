//! Table of a collective: the messages of each round as text.
//!
//! A round has the length of one message of any size. In each round a rank sends at most one message and receives at
//! most one.

use crate::fault::PlanFault;
use crate::matching::byte_runs;
use crate::plan::{Operation, Plan};
use crate::simulate::{Model, SimulatedTransfer, timeline};
use crate::span::Span;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// Return the table of the given plans, one per rank.
///
/// A message is written as `sender -> receiver [elements]`, with `+>` if the receiver combines, and as `b1[elements]`
/// for a buffer other than the first. Selected rows are runs of elements. If the receiver selects rows, `at` precedes
/// its target elements.
pub fn table(plans: &[Plan]) -> Result<String, PlanFault> {
    let mut transfers = timeline(plans, &Model::ROUNDS)?;
    transfers.sort_by(|a, b| a.end_s.total_cmp(&b.end_s).then(a.sender.cmp(&b.sender)));
    let mut text = String::new();
    for round in transfers.chunk_by(|a, b| a.end_s == b.end_s) {
        let row: Vec<String> = round.iter().map(|transfer| cell(plans, transfer)).collect();
        writeln!(text, "round {}: {}", round[0].end_s, row.join("   ")).expect("writing to a String cannot fail");
    }
    Ok(text)
}

fn cell(plans: &[Plan], transfer: &SimulatedTransfer) -> String {
    let SimulatedTransfer { sender, send, receiver, receive, .. } = *transfer;
    let (send, receive) = (&plans[sender].operations()[send], &plans[receiver].operations()[receive]);
    let arrow = if matches!(receive, Operation::Reduce { .. }) { "+>" } else { "->" };
    let at = receive.rows().map(|_| alloc::format!(" at {}", format_runs(byte_runs::written(receive))));
    alloc::format!("{sender} {arrow} {receiver} {}{}", format_runs(byte_runs::read(send)), at.unwrap_or_default())
}

/// Format byte runs of one buffer.
fn format_runs(spans: impl Iterator<Item = Span>) -> String {
    let (mut buffer, mut runs) = (String::new(), Vec::new());
    for span in spans {
        if span.buffer.0 > 0 {
            buffer = alloc::format!("b{}", span.buffer.0);
        }
        let first = span.start_bytes / span.element_bytes;
        runs.push(alloc::format!("{first}..{}", first + span.element_count()));
    }
    alloc::format!("{buffer}[{}]", runs.join(", "))
}
