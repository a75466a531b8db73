//! Generate `docs/algorithms.md` from the plans: `cargo run -p ripieno-plan --example algorithms -- --write`. Without
//! the option it prints the page.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{DataLayout, topologies};
use ripieno_plan::check::check;
use ripieno_plan::simulate::{Model, cost_s};
use ripieno_plan::table::table;
use ripieno_plan::{
    Algorithm, Buffer, Collective, Needs, Op, Order, PlacementUse, Plan, PlanRequest, TheoryCase, promises,
};
use std::fmt::Write;

/// Path of the page.
pub const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/algorithms.md");

/// Number of ranks for the counted figures, and for the tables.
const COUNTED_RANK_COUNT: usize = 8;
const TABLE_RANK_COUNT: usize = 4;
/// Root of the rooted collectives.
const ROOT: usize = 0;
/// Distance of the rotation.
const DISTANCE: usize = 1;

const HEAD: &str = "\
# Algorithms

With this page you can compare the algorithms of each collective, and pick one for `algorithm=`. The page is generated
from the plans by `cargo run -p ripieno-plan --example algorithms -- --write`; a test fails if it is stale.

`comm.<collective>(…, algorithm=\"<name>\")` runs the named algorithm. Without a name, the choice depends on size, ranks
and placement. The tests compare every formula with the plans. Symbols of the formulas:

- `p`: number of ranks;
- `alpha`, `beta`, `gamma`: seconds per message, per transferred byte and per reduced byte;
- `n`: bytes of the whole vector, or of all chunks together. In an alltoall, a rotation or a neighbor exchange, bytes
  that one rank sends; in a barrier, bytes of the token;
- `d`: number of neighbors of a rank;
- `k`: number of segments, into which the executor divides messages.

The figures are counted for 8 ranks (two-level: on 4 nodes) and root 0:

- *hops*: messages on the longest dependency chain, if a rank can exchange messages with all others at once;
- *rounds*: the same, if a rank sends one message and receives one message at a time;
- *messages*: number of messages of all ranks;
- *busiest*: bytes that the busiest rank sends or receives, whichever is more, in `n`;
- *total*: bytes that all ranks send, in `n`;
- *scratch*: maximum memory of a rank in addition to the vector, in `n`;
- *zero-copy*: whether a receiver may read the memory of the sender without a copy.

The tables below each collective list the messages of each round, for 4 ranks (two-level: on 2 nodes) and a vector of 8
elements. `+>` means that the receiver reduces; `b1` is the output, `b2` scratch memory. The pictures are for 8 ranks
(two-level: on 4 nodes), made by `ripieno explain plans --draw docs/algorithms`. Each arrow is a message: it starts in
the round of the send and ends at the receiver.
";

#[allow(dead_code)] // The test that includes this file calls `document` only.
fn main() -> std::io::Result<()> {
    if std::env::args().any(|argument| argument == "--write") {
        return std::fs::write(PATH, document());
    }
    print!("{}", document());
    Ok(())
}

/// Return the whole page.
pub fn document() -> String {
    let mut text = HEAD.to_string();
    for collective in Collective::catalogued() {
        write!(text, "\n## {}\n\n", collective.name()).expect("writing to a String cannot fail");
        text += "| algorithm | hops | rounds | messages | busiest | total | scratch | zero-copy | cost |\n";
        text += "|---|---|---|---|---|---|---|---|---|\n";
        Algorithm::of(collective).for_each(|algorithm| text += &row(algorithm));
        text.push('\n');
        Algorithm::of(collective).for_each(|algorithm| text += &source(algorithm));
        text += "\n```text\n";
        let tables: Vec<String> = Algorithm::of(collective).map(round_table).collect();
        text += &tables.join("\n");
        text += "```\n\n";
        Algorithm::of(collective).for_each(|algorithm| text += &picture(algorithm));
    }
    text
}

fn row(algorithm: &Algorithm) -> String {
    let layout = DataLayout::equal(COUNTED_RANK_COUNT, 8 * COUNTED_RANK_COUNT);
    let requests = requests(algorithm, &layout);
    let plans = plans(algorithm, &requests);
    let report = check(&plans, &promises(&requests)).expect("the plans are valid");
    let rounds = cost_s(&plans, &Model::ROUNDS).expect("the plans are valid");

    let n = TheoryCase::of(&requests).n as f64;
    let sent = |bytes: usize| decimal(bytes as f64 / n);
    let busiest = report.ranks.iter().map(|rank| rank.sent_bytes.max(rank.received_bytes)).max().unwrap_or(0);
    let messages: usize = report.ranks.iter().map(|rank| rank.sent_count).sum();
    format!(
        "| {} | {} | {rounds} | {messages} | {} | {} | {} | {} | {} |\n",
        algorithm.name,
        report.round_count,
        sent(busiest),
        sent(report.ranks.iter().map(|rank| rank.sent_bytes).sum()),
        sent(plans.iter().map(scratch_bytes).max().unwrap_or(0)),
        if algorithm.rendezvous { "yes" } else { "no" },
        algorithm.theory.cost,
    )
}

fn source(algorithm: &Algorithm) -> String {
    let needs = match algorithm.needs {
        Needs::Nothing => String::new(),
        needs => format!(" Needs {}.", needs.text()),
    };
    format!("- *{}*: {}.{needs}\n", algorithm.name, algorithm.theory.source)
}

fn round_table(algorithm: &Algorithm) -> String {
    let layout = DataLayout::equal(TABLE_RANK_COUNT, 2 * TABLE_RANK_COUNT);
    let plans = plans(algorithm, &requests(algorithm, &layout));
    format!("{}\n{}", algorithm.name, table(&plans).expect("the plans are valid"))
}

/// Return the link to the diagram drawn by `ripieno explain plans`.
fn picture(algorithm: &Algorithm) -> String {
    let (collective, name) = (algorithm.collective().name(), algorithm.name);
    format!("![{collective} by {name} among {COUNTED_RANK_COUNT} ranks](algorithms/{collective}-{name}.svg)\n")
}

fn requests<'a>(algorithm: &Algorithm, layout: &'a DataLayout) -> Vec<PlanRequest<'a>> {
    let root = if algorithm.collective() == Collective::Rotate { DISTANCE } else { ROOT };
    layout.requests(algorithm.collective(), root, 1, Op::Sum)
}

fn plans(algorithm: &Algorithm, requests: &[PlanRequest]) -> Vec<Plan> {
    match algorithm.placement {
        PlacementUse::TwoLevels => {
            topologies::plans(algorithm, &topologies::grid(requests.len() / 2, 2), Order::Racks, requests)
        }
        PlacementUse::Ignored | PlacementUse::Ordered => {
            algorithm.plans(requests).expect("every algorithm supports equal chunks and an even number of ranks")
        }
    }
}

fn scratch_bytes(plan: &Plan) -> usize {
    let spans = plan.operations().iter().flat_map(|operation| [operation.reads(), operation.writes()]).flatten();
    let ends = spans.filter(|span| span.buffer == Buffer::SCRATCH).map(|span| span.end_bytes());
    ends.max().unwrap_or(0)
}

/// Format a number with at most three decimals.
fn decimal(value: f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}
