//! The table of a collective: who sends what to whom in each round.
//!
//! A round is as long as a message, whatever its size; a rank sends one and receives one in each.

use crate::cost::{Model, Transfer, timeline};
use crate::fault::Fault;
use crate::plan::{Operation, Plan};
use crate::wiring::moved;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// The table of the given plans, one per rank: `sender -> receiver [elements]`, `+>` where the receiver combines, and
/// for spans of other buffers than the first `b1[elements]`.
pub fn table(plans: &[Plan]) -> Result<String, Fault> {
    let mut transfers = timeline(plans, &Model::ROUNDS)?;
    transfers.sort_by(|a, b| a.end_s.total_cmp(&b.end_s).then(a.sender.cmp(&b.sender)));
    let mut text = String::new();
    for round in transfers.chunk_by(|a, b| a.end_s == b.end_s) {
        let row: Vec<String> = round.iter().map(|transfer| cell(plans, transfer)).collect();
        writeln!(text, "round {}: {}", round[0].end_s, row.join("   ")).expect("a String takes any text");
    }
    Ok(text)
}

fn cell(plans: &[Plan], transfer: &Transfer) -> String {
    let Transfer { sender, send, receiver, receive, .. } = *transfer;
    let reduces = matches!(plans[receiver].operations()[receive], Operation::Reduce { .. });
    let arrow = if reduces { "+>" } else { "->" };
    let span = moved(&plans[sender], send);
    let first = span.start_bytes / span.element_bytes;
    let buffer = match span.buffer.0 {
        0 => String::new(),
        number => alloc::format!("b{number}"),
    };
    alloc::format!("{sender} {arrow} {receiver} {buffer}[{first}..{}]", first + span.element_count())
}
