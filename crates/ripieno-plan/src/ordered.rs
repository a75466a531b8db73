//! Plans for ranks in a given order, for algorithms that only use rank numbers.
//!
//! Ranks are renumbered by their positions in the order, the algorithm plans for these numbers, and the peers of the
//! plan are mapped back.

use crate::group::Group;
use crate::plan::Plan;
use crate::request::Request;
use crate::span::Span;
use alloc::vec::Vec;

/// Return the result of `plan` for `request` with the ranks of `group` in its order, root first.
pub(crate) fn in_order(group: &Group, request: &Request, plan: impl FnOnce(&Group, &Request) -> Plan) -> Plan {
    match Stops::of(group, request.root()) {
        Some(stops) => stops.planned(group.rank(), request, plan),
        None => plan(group, request),
    }
}

/// The ranks by position in an order, and the positions by rank.
pub(crate) struct Stops {
    ranks: Vec<usize>,
    places: Vec<usize>,
}

impl Stops {
    /// Return the positions in the order of `group`, root first, or `None` if the order equals the rank numbers.
    pub(crate) fn of(group: &Group, root: Option<usize>) -> Option<Stops> {
        let (order, topology) = (group.order(), group.topology());
        if order.is_given(topology) {
            return None;
        }
        let ranks = order.ranks(topology, root.unwrap_or(0));
        let mut places = alloc::vec![0; ranks.len()];
        ranks.iter().enumerate().for_each(|(place, &rank)| places[rank] = place);
        Some(Stops { ranks, places })
    }

    /// Return the plan of `rank`.
    pub(crate) fn planned(&self, rank: usize, request: &Request, plan: impl FnOnce(&Group, &Request) -> Plan) -> Plan {
        let placed = |chunks: &[Span]| -> Vec<Span> { self.ranks.iter().map(|&rank| chunks[rank]).collect() };
        let as_placed = Group::new(self.places[rank], self.ranks.len());
        let planned = placed_plan(&as_placed, request, placed, plan);
        planned.with_peers(|place| self.ranks[place])
    }
}

fn placed_plan(
    as_placed: &Group,
    request: &Request,
    placed: impl Fn(&[Span]) -> Vec<Span>,
    plan: impl FnOnce(&Group, &Request) -> Plan,
) -> Plan {
    match *request {
        Request::Broadcast { vector, .. } => plan(as_placed, &Request::Broadcast { root: 0, vector }),
        Request::Reduce { vector, op, .. } => plan(as_placed, &Request::Reduce { root: 0, vector, op }),
        Request::Allreduce { .. } => plan(as_placed, request),
        Request::Allgather { chunks } => plan(as_placed, &Request::Allgather { chunks: &placed(chunks) }),
        Request::ReduceScatter { chunks, op } => {
            plan(as_placed, &Request::ReduceScatter { chunks: &placed(chunks), op })
        }
        _ => panic!("no algorithm of {} has an order", request.collective().name()),
    }
}
