//! Communicators of logical ranks, in worlds in which ranks have replicas.

use crate::communicator::Communicator;
use crate::communicator_state::Replica;
use crate::core::REPLICATED_MAX;
use crate::error::{Error, argument};
use ripieno_plan::Group;
use ripieno_run::{JobFailure, Replicas};
use std::sync::Arc;

impl Communicator {
    /// The communicator of the logical ranks of a world that was started with `count` replicas; every rank of the world
    /// calls it. Replicas of a rank hold the same data and make the same calls. Each of them ends every collective with
    /// the same bits as long as one replica of each rank lives. Calls on the world itself fail once a rank has died.
    pub fn replicate(&self, count: usize) -> Result<Communicator, Error> {
        let mut held = self.hold()?;
        let core = held.core();
        let replicas = core.fabric.replicas();
        if !self.is_world() {
            return Err(argument("replicas", count, "a call on the communicator of the whole world"));
        }
        if count != replicas.count() {
            return Err(argument("replicas", count, &started_with(replicas, count)));
        }
        if core.replicated_count == REPLICATED_MAX {
            return Err(argument("replicated communicators", REPLICATED_MAX, "fewer; use one again"));
        }
        // Nothing is exchanged, for a rank may have died already.
        let id = u32::MAX - core.replicated_count;
        core.replicated_count += 1;
        let replica = Replica { replicas, rank: self.shared.rank() };
        let members: Vec<usize> = (0..replicas.logical_count()).collect();
        // Replicas plan the same, as if all stood where the first ones do.
        let topology = Arc::new(self.topology().of(&members));
        let group = Group::with_topology(replicas.logical(replica.rank), topology).in_order(self.group.order());
        let world_ranks: Arc<[usize]> = members.into();
        Ok(Communicator::among(&self.shared, core, id, group, world_ranks, Some(replica)))
    }

    /// How many replicas there are of each rank.
    pub fn replicas(&self) -> usize {
        self.replica.map_or(1, |replica| replica.replicas.count())
    }

    /// Which of the replicas of its rank this one is, from 0 on.
    pub fn replica(&self) -> usize {
        self.replica.map_or(0, |replica| replica.rank / replica.replicas.logical_count())
    }

    /// How ranks of the world have died of which a replica lives, lowest rank first.
    pub fn losses(&self) -> Result<Vec<JobFailure>, Error> {
        Ok(self.hold()?.core().fabric.losses())
    }
}

fn started_with(replicas: Replicas, count: usize) -> String {
    match replicas.count() {
        1 => format!(
            "1, because this world was started without replicas; to have them start it with \
             ripieno run --replicas {count}, ripieno.launch(replicas={count}) or, under another launcher, \
             RIPIENO_REPLICAS={count} in the environment of every rank"
        ),
        started => format!("{started}, as this world was started"),
    }
}
