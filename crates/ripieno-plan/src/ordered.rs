//! Plans for ranks in a given order, for algorithms that only use rank numbers.
//!
//! Ranks are renumbered by their positions in the order, the algorithm plans for these numbers, and the peers of the
//! plan are mapped back.

use crate::group::Group;
use crate::plan::Plan;
use crate::request::PlanRequest;
use crate::span::Span;
use alloc::vec::Vec;

/// Return the result of `plan` for `request` with the ranks of `group` in its order, root first.
pub(crate) fn in_order(group: &Group, request: &PlanRequest, plan: impl FnOnce(&Group, &PlanRequest) -> Plan) -> Plan {
    match RankOrder::of(group, request.root()) {
        Some(rank_order) => rank_order.plan(group.rank(), request, plan),
        None => plan(group, request),
    }
}

/// The ranks by position in an order, and the positions by rank.
pub(crate) struct RankOrder {
    ranks: Vec<usize>,
    positions: Vec<usize>,
}

impl RankOrder {
    /// Return the positions in the order of `group`, root first, or `None` if the order equals the rank numbers.
    pub(crate) fn of(group: &Group, root: Option<usize>) -> Option<RankOrder> {
        let (order, topology) = (group.order(), group.topology());
        if order.is_given(topology) {
            return None;
        }
        let ranks = order.ranks(topology, root.unwrap_or(0));
        let mut positions = alloc::vec![0; ranks.len()];
        ranks.iter().enumerate().for_each(|(position, &rank)| positions[rank] = position);
        Some(RankOrder { ranks, positions })
    }

    /// Return the plan of `rank`.
    pub(crate) fn plan(
        &self,
        rank: usize,
        request: &PlanRequest,
        plan: impl FnOnce(&Group, &PlanRequest) -> Plan,
    ) -> Plan {
        let reordered = |chunks: &[Span]| -> Vec<Span> { self.ranks.iter().map(|&rank| chunks[rank]).collect() };
        let renumbered = Group::new(self.positions[rank], self.ranks.len());
        let plan = plan_by_position(&renumbered, request, reordered, plan);
        plan.with_peers(|position| self.ranks[position])
    }
}

fn plan_by_position(
    group: &Group,
    request: &PlanRequest,
    reordered: impl Fn(&[Span]) -> Vec<Span>,
    plan: impl FnOnce(&Group, &PlanRequest) -> Plan,
) -> Plan {
    match *request {
        PlanRequest::Broadcast { vector, .. } => plan(group, &PlanRequest::Broadcast { root: 0, vector }),
        PlanRequest::Reduce { vector, op, .. } => plan(group, &PlanRequest::Reduce { root: 0, vector, op }),
        PlanRequest::Allreduce { .. } => plan(group, request),
        PlanRequest::Allgather { chunks } => plan(group, &PlanRequest::Allgather { chunks: &reordered(chunks) }),
        PlanRequest::ReduceScatter { chunks, op } => {
            plan(group, &PlanRequest::ReduceScatter { chunks: &reordered(chunks), op })
        }
        _ => panic!("no algorithm of {} has an order", request.collective().name()),
    }
}
