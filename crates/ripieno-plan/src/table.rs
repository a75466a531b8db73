//! The table of a collective: who sends what to whom in each round.
//!
//! A round is as long as a message, whatever its size; a rank sends one and receives one in each.

use crate::fault::PlanFault;
use crate::matching::stretches;
use crate::plan::{Operation, Plan};
use crate::simulate::{Model, SimulatedTransfer, timeline};
use crate::span::Span;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// The table of the given plans, one per rank: `sender -> receiver [elements]`, `+>` where the receiver combines, and
/// for spans of other buffers than the first `b1[elements]`. Chosen rows are runs of elements; `at` says where they go,
/// where the receiver chooses.
pub fn table(plans: &[Plan]) -> Result<String, PlanFault> {
    let mut transfers = timeline(plans, &Model::ROUNDS)?;
    transfers.sort_by(|a, b| a.end_s.total_cmp(&b.end_s).then(a.sender.cmp(&b.sender)));
    let mut text = String::new();
    for round in transfers.chunk_by(|a, b| a.end_s == b.end_s) {
        let row: Vec<String> = round.iter().map(|transfer| cell(plans, transfer)).collect();
        writeln!(text, "round {}: {}", round[0].end_s, row.join("   ")).expect("a String takes any text");
    }
    Ok(text)
}

fn cell(plans: &[Plan], transfer: &SimulatedTransfer) -> String {
    let SimulatedTransfer { sender, send, receiver, receive, .. } = *transfer;
    let (send, receive) = (&plans[sender].operations()[send], &plans[receiver].operations()[receive]);
    let arrow = if matches!(receive, Operation::Reduce { .. }) { "+>" } else { "->" };
    let at = receive.rows().map(|_| alloc::format!(" at {}", place(stretches::written(receive))));
    alloc::format!("{sender} {arrow} {receiver} {}{}", place(stretches::read(send)), at.unwrap_or_default())
}

/// Stretches of one buffer.
fn place(stretches: impl Iterator<Item = Span>) -> String {
    let (mut buffer, mut runs) = (String::new(), Vec::new());
    for span in stretches {
        if span.buffer.0 > 0 {
            buffer = alloc::format!("b{}", span.buffer.0);
        }
        let first = span.start_bytes / span.element_bytes;
        runs.push(alloc::format!("{first}..{}", first + span.element_count()));
    }
    alloc::format!("{buffer}[{}]", runs.join(", "))
}
