//! Plans for ranks in an order. Algorithms know nothing of it: they are planned for ranks renamed to their places in
//! the order, and the peers of the plan are named back.

use crate::group::Group;
use crate::plan::Plan;
use crate::request::Request;
use crate::span::Span;
use alloc::vec::Vec;

/// The plan that `plan` makes for `request` when the ranks of `group` stand in its order, the root first.
pub(crate) fn in_order(group: &Group, request: &Request, plan: impl FnOnce(&Group, &Request) -> Plan) -> Plan {
    let (order, topology) = (group.order(), group.topology());
    if order.is_given(topology) {
        return plan(group, request);
    }
    let ranks = order.ranks(topology, request.root().unwrap_or(0));
    let place = ranks.iter().position(|&rank| rank == group.rank()).expect("an order holds every rank");
    let placed = |chunks: &[Span]| -> Vec<Span> { ranks.iter().map(|&rank| chunks[rank]).collect() };
    let as_placed = Group::new(place, group.size());
    let planned = match *request {
        Request::Broadcast { vector, .. } => plan(&as_placed, &Request::Broadcast { root: 0, vector }),
        Request::Reduce { vector, op, .. } => plan(&as_placed, &Request::Reduce { root: 0, vector, op }),
        Request::Allreduce { .. } => plan(&as_placed, request),
        Request::Allgather { chunks } => plan(&as_placed, &Request::Allgather { chunks: &placed(chunks) }),
        Request::ReduceScatter { chunks, op } => {
            plan(&as_placed, &Request::ReduceScatter { chunks: &placed(chunks), op })
        }
        _ => panic!("no algorithm of {} has an order", request.collective().name()),
    };
    planned.with_peers(|place| ranks[place])
}
