//! Symmetry: rank 0 represents all ranks if all do the same at the same time.
//!
//! On equal links, a simulation depends only on the kinds, lengths, peers and waits of the operations of each rank. If
//! they are equal on all ranks, with peers as distances on a ring or as differences in a hypercube, all ranks progress
//! alike. So rank 0 alone is simulated, and receives its own messages.
//! Cost: the operations of one plan instead of the operations of all plans.

use super::event_loop::SimulationState;
use super::flow::end_of;
use super::flow_graph::FlowGraph;
use super::meter::StepMeter;
use super::{PlanSimulation, STEPS_MAX, SimulationError};
use crate::cluster::{Cluster, WireName};
use crate::waits::{OperationWait, of_plan};
use ripieno_plan::{Operation, Plan};
use std::mem::Discriminant;

/// Relation of the two ends of a message, the same for the messages of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerRelation {
    /// Distance from the sender to the receiver around the ring of `p` ranks.
    Ring { p: usize },
    /// Bits in which the two ranks differ.
    Hypercube,
}

/// Properties of a rank's plan that determine its progress.
#[derive(Clone, PartialEq)]
struct PlanShape {
    operations: Vec<(Discriminant<Operation>, Option<usize>, usize)>,
    waits: Vec<OperationWait>,
}

/// The plan of rank 0 that represents the plans of all ranks.
#[derive(Debug)]
pub(crate) struct Representative {
    plan: Plan,
    relation: PeerRelation,
}

impl PeerRelation {
    /// Return the receiver of the corresponding message of rank 0.
    fn receiver(self, sender: usize, receiver: usize) -> usize {
        match self {
            PeerRelation::Ring { p } => (receiver + p - sender) % p,
            PeerRelation::Hypercube => sender ^ receiver,
        }
    }
}

impl PlanShape {
    fn of(cluster: &Cluster, rank: usize, plan: &Plan, relation: PeerRelation) -> PlanShape {
        let shape = |operation: &Operation| {
            let message = end_of(rank, operation, 0);
            let receiver = message.map(|message| relation.receiver(message.sender as usize, message.receiver as usize));
            (std::mem::discriminant(operation), receiver, operation.length_bytes())
        };
        PlanShape {
            operations: plan.operations().iter().map(shape).collect(),
            waits: of_plan(plan, cluster.relayed_bytes(), |index| Some(index as u32)),
        }
    }
}

impl Representative {
    /// Return the representative of all plans on a cluster of equal links. `checked` are the plans of rank 0 and of
    /// further ranks. Return `None` if one of them differs from the plan of rank 0, or if links differ.
    pub(crate) fn of(
        cluster: &Cluster,
        checked: &[(usize, Plan)],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Representative>, SimulationError> {
        let p = cluster.topology.size();
        if !cluster.has_equal_links() || p == 1 {
            return Ok(None);
        }
        let ring = PeerRelation::Ring { p };
        let relations = [Some(ring), p.is_power_of_two().then_some(PeerRelation::Hypercube)];
        for relation in relations.into_iter().flatten() {
            let (mut first, mut are_alike) = (None, true);
            for (rank, plan) in checked {
                if is_interrupted() {
                    return Err(SimulationError::Interrupted);
                }
                let shape = PlanShape::of(cluster, *rank, plan, relation);
                are_alike = first.get_or_insert_with(|| shape.clone()) == &shape;
                if !are_alike {
                    break;
                }
            }
            if are_alike && let Some((_, plan)) = checked.first() {
                return Ok(Some(Representative { plan: plan.clone(), relation }));
            }
        }
        Ok(None)
    }

    /// Simulate the plans of all ranks. `is_interrupted` is called from time to time and stops the simulation if it
    /// returns true.
    pub(crate) fn simulate(
        &self,
        cluster: &Cluster,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<PlanSimulation, SimulationError> {
        let relation = self.relation;
        let graph = FlowGraph::of_representative(
            cluster,
            &self.plan,
            |sender, receiver| relation.receiver(sender, receiver),
            is_interrupted,
        )?;
        let mut event_loop = SimulationState::ready(cluster, graph);
        let mut meter = StepMeter::new(STEPS_MAX, is_interrupted);
        event_loop.run(&mut meter)?;
        let one = event_loop.simulated();
        let p = cluster.topology.size();
        let of_rank = |rank: usize| {
            one.loads.iter().copied().map(move |mut load| {
                load.wire = match load.wire {
                    WireName::Out(_) => WireName::Out(rank),
                    WireName::In(_) => WireName::In(rank),
                    wire => unreachable!("equal links have ports only, not a {wire}"),
                };
                load
            })
        };
        Ok(PlanSimulation {
            finish_s: vec![one.finish_s[0]; p],
            sent_bytes: vec![one.sent_bytes[0]; p],
            loads: (0..p).flat_map(of_rank).collect(),
            transfers: one.transfers,
            transfer_weight: p,
            step_count: meter.step_count(),
        })
    }
}
