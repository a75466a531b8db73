//! Communicators of logical ranks, in worlds with replicated ranks.

use crate::communicator::Communicator;
use crate::communicator_state::Replica;
use crate::core::MAX_REPLICATED_COUNT;
use crate::error::{Error, argument};
use ripieno_plan::Group;
use ripieno_run::{JobFailure, Replicas};
use std::sync::Arc;

impl Communicator {
    /// Create the communicator of the logical ranks of a world that was started with `count` replicas. Every rank of
    /// the world must call this.
    ///
    /// Replicas of a rank must hold the same data and make the same calls. As long as each rank has a live replica,
    /// every collective succeeds with bitwise identical results on all replicas. Calls on the world itself fail once a
    /// rank has died.
    pub fn replicate(&self, count: usize) -> Result<Communicator, Error> {
        let mut held = self.hold()?;
        let core = held.core();
        let replicas = core.fabric.replicas();
        if !self.is_world() {
            return Err(argument("replicas", count, "a call on the communicator of the world"));
        }
        if count != replicas.count() {
            return Err(argument("replicas", count, &started_with(replicas, count)));
        }
        if core.replicated_count == MAX_REPLICATED_COUNT {
            return Err(argument("replicated communicators", MAX_REPLICATED_COUNT, "fewer; use one again"));
        }
        // Derive the id without an exchange, because a rank may have died already.
        let id = u32::MAX - core.replicated_count;
        core.replicated_count += 1;
        let replica = Replica { replicas, rank: self.shared.rank() };
        let members: Vec<usize> = (0..replicas.logical_count()).collect();
        // All replicas use the plan for the nodes of the first replicas.
        let topology = Arc::new(self.topology().of(&members));
        let group =
            Group::with_topology(replicas.logical(replica.rank), topology).in_order(self.group_of_all().order());
        let world_ranks: Arc<[usize]> = members.into();
        Ok(Communicator::in_core(&self.shared, core, id, group, world_ranks, Some(replica)))
    }

    /// Return the number of replicas of each rank.
    pub fn replicas(&self) -> usize {
        self.replica.map_or(1, |replica| replica.replicas.count())
    }

    /// Return the index of this replica of its rank, from 0 on.
    pub fn replica(&self) -> usize {
        self.replica.map_or(0, |replica| replica.rank / replica.replicas.logical_count())
    }

    /// Return the failures of world ranks that have a live replica, lowest rank first.
    pub fn losses(&self) -> Result<Vec<JobFailure>, Error> {
        Ok(self.hold()?.core().fabric.losses())
    }
}

fn started_with(replicas: Replicas, count: usize) -> String {
    match replicas.count() {
        1 => format!(
            "1, because this world was started without replicas; to use replicas, start it with \
             ripieno run --replicas {count}, ripieno.launch(replicas={count}) or, under another launcher, \
             RIPIENO_REPLICAS={count} in the environment of every rank"
        ),
        started => format!("{started}, as this world was started"),
    }
}
