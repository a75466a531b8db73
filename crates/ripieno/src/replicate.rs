//! Communicators of logical ranks, in worlds in which ranks have copies.

use crate::communicator::Communicator;
use crate::error::{Error, argument};
use crate::seat::Seat;
use ripieno_plan::Group;
use ripieno_run::{Copies, Failure};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// The world can be replicated so often; these numbers of communicators are not for parts of it.
pub(crate) const REPLICATED_MAX: u32 = 1 << 28;

/// A rank of the world, and which ranks are copies of each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    pub copies: Copies,
    pub rank: usize,
}

impl Communicator {
    /// The communicator of the logical ranks of a world that was started with `replicas`; every rank of the world calls it.
    /// Copies of a rank hold the same data and make the same calls. Each of them ends every collective with the same bits as
    /// long as one copy of each rank lives. Calls on the world itself fail once a rank has died.
    pub fn replicate(&self, replicas: usize) -> Result<Communicator, Error> {
        let mut held = self.hold()?;
        let core = held.core();
        let copies = core.fabric.copies();
        if !self.is_world() {
            return Err(argument("replicas", replicas, "a call on the communicator of the whole world"));
        }
        if replicas != copies.replicas() {
            return Err(argument("replicas", replicas, &started_with(copies, replicas)));
        }
        if core.replicated_count == REPLICATED_MAX {
            return Err(argument("replicated communicators", REPLICATED_MAX, "fewer; use one again"));
        }
        // Nothing is exchanged, for a rank may have died already.
        let id = u32::MAX - core.replicated_count;
        core.replicated_count += 1;
        let copy = Replica { copies, rank: self.shared.rank() };
        let members: Vec<usize> = (0..copies.logical_count()).collect();
        // Copies plan the same, as if all stood where the first ones do.
        let topology = Arc::new(self.topology().of(&members));
        let group = Group::with_topology(copies.logical(copy.rank), topology).in_order(self.group.order());
        let world_ranks: Arc<[usize]> = members.into();
        core.seats.push(Some(Box::new(Seat::new(id, group.clone(), world_ranks.clone(), Some(copy)))));
        let seat = core.seats.len() - 1;
        let (shared, is_closed, packets) = (self.shared.clone(), AtomicBool::new(false), Mutex::default());
        Ok(Communicator { shared, seat, is_closed, group, world_ranks, copy: Some(copy), packets })
    }

    /// How many copies there are of each rank.
    pub fn replicas(&self) -> usize {
        self.copy.map_or(1, |copy| copy.copies.replicas())
    }

    /// Which of the copies of its rank this one is, from 0 on.
    pub fn replica(&self) -> usize {
        self.copy.map_or(0, |copy| copy.rank / copy.copies.logical_count())
    }

    /// How ranks of the world have died of which a copy lives, lowest rank first.
    pub fn losses(&self) -> Result<Vec<Failure>, Error> {
        Ok(self.hold()?.core().fabric.losses())
    }
}

fn started_with(copies: Copies, replicas: usize) -> String {
    match copies.replicas() {
        1 => format!(
            "1, because this world was started without copies; to have them start it with ripieno run --replicas {replicas}, \
             ripieno.launch(replicas={replicas}) or, under another launcher, RIPIENO_REPLICAS={replicas} in the environment \
             of every rank"
        ),
        started => format!("{started}, as this world was started"),
    }
}
