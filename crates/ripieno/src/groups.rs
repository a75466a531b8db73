//! Communicators of a subset of ranks, created by a split that all ranks call or by the members only.
//!
//! The id of a communicator is `split_count * world_size + lowest_rank`. Communicators that share a rank differ in
//! `split_count`; disjoint ones differ in their lowest rank.

use crate::agree;
use crate::communicator::Communicator;
use crate::communicator_state::CommunicatorState;
use crate::core::{GROUP_ID_COUNT, MAX_REPLICATED_COUNT, RankCore};
use crate::elements::{ElementShape, ElementType};
use crate::error::{Error, argument};
use crate::owned_buffers::NO_MEMORY;
use crate::task::CollectiveTask;
use ripieno_kernels::keyed::hash_string;
use ripieno_plan::Group;
use ripieno_run::{BufferMemory, Element};
use std::sync::Arc;

/// Maximum number of members that exchange directly, each with every other. Any two then detect a mismatch at once.
const MAX_DIRECT_MEMBERS: usize = 64;

impl Communicator {
    /// Split the ranks by color. The ranks of one color form a communicator, ordered by `key` and then by their old
    /// rank. A rank without a color gets `None`. Every rank must call this. The new communicators use the links of this
    /// communicator and are closed with the world.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Communicator>, Error> {
        let p = self.world_size();
        let mut held = self.hold()?;
        // Per rank: color + 1 (0 without a color), key, split count.
        let mut rows = vec![[0u64; 3]; p];
        rows[self.rank()] =
            [color.map_or(0, |color| u64::from(color) + 1), key as u64, u64::from(held.core().split_count)];
        let mut bytes: Vec<u8> = rows.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
        let counts = vec![3; p];
        let (mut runtime, state) = held.communicator(self.number)?;
        let memory = [BufferMemory::Write(&mut bytes), NO_MEMORY];
        let elements =
            ElementType { element: Element::U64, shape: ElementShape::Described("colors and keys of a split") };
        state.run_unbound(&mut runtime, &CollectiveTask::Allgather { chunks: &counts }, elements, None, memory)?;
        let words = words(&bytes);
        let rows: Vec<[u64; 3]> = words.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect();

        let core = held.core();
        let number = next_number(core, rows.iter().map(|row| row[2]))?;
        if color.is_none() {
            return Ok(None);
        }
        let mut members: Vec<usize> = (0..p).filter(|&rank| rows[rank][0] == rows[self.rank()][0]).collect();
        members.sort_by_key(|&rank| (rows[rank][1] as i64, rank));
        Ok(Some(self.of_members(core, number, &members)))
    }

    /// Create the communicator of `members`, ranks of this communicator, in the given order. Exactly the members call
    /// this, with equal lists. The group uses the links of this communicator and is closed with the world.
    pub fn group(&self, members: &[usize]) -> Result<Communicator, Error> {
        self.check_members(members)?;
        let world_ranks: Arc<[usize]> = members.iter().map(|&rank| self.world_ranks[rank]).collect();
        let rank = members.iter().position(|&rank| rank == self.rank()).expect("this rank is a member");
        let mut held = self.hold()?;
        let core = held.core();
        let sequence = core.group_counts.entry(world_ranks.clone()).or_default();
        let group_sequence = *sequence;
        *sequence += 1;
        let mut split_counts = vec![0u64; members.len()];
        split_counts[rank] = u64::from(core.split_count);

        // The members exchange their split counts under an id derived from their world ranks. All members have created
        // this group equally often before, so they use the same sequence number.
        let topology = Arc::new(self.topology().of(members));
        let group = Group::with_topology(rank, topology).in_order(self.group_of_all().order());
        let mut exchange = CommunicatorState::new(exchange_id(&world_ranks), group, world_ranks, self.replica);
        exchange.resume(group_sequence);
        let (mut runtime, _) = held.communicator(self.number)?;
        let mut bytes: Vec<u8> = split_counts.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (counts, words_of) = (vec![1; members.len()], format!("a group of the ranks {members:?}"));
        let elements = ElementType { element: Element::U64, shape: ElementShape::Described(&words_of) };
        let algorithm = (members.len() <= MAX_DIRECT_MEMBERS).then_some("direct");
        let memory = [BufferMemory::Write(&mut bytes), NO_MEMORY];
        exchange.run_unbound(
            &mut runtime,
            &CollectiveTask::Allgather { chunks: &counts },
            elements,
            algorithm,
            memory,
        )?;

        let core = held.core();
        let number = next_number(core, words(&bytes).into_iter())?;
        Ok(self.of_members(core, number, members))
    }

    fn check_members(&self, members: &[usize]) -> Result<(), Error> {
        let wrong = |expected: &str| Err(argument("ranks", format!("{members:?}"), expected));
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        if sorted.last().is_some_and(|&last| last >= self.world_size()) {
            return wrong(&format!("ranks of this communicator, 0 to {}", self.world_size() - 1));
        }
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return wrong("each rank once");
        }
        if sorted.binary_search(&self.rank()).is_err() {
            return wrong(&format!("a list with this rank, {}, because only members call it", self.rank()));
        }
        Ok(())
    }

    /// Create the communicator of `members`, which include this rank.
    fn of_members(&self, core: &mut RankCore, number: u32, members: &[usize]) -> Communicator {
        let world_ranks: Arc<[usize]> = members.iter().map(|&rank| self.world_ranks[rank]).collect();
        let lowest = world_ranks.iter().min().copied().expect("this rank is a member");
        let id = number * core.fabric.world_size() as u32 + lowest as u32;
        let rank = members.iter().position(|&rank| rank == self.rank()).expect("this rank is a member");
        let topology = Arc::new(self.topology().of(members));
        let group = Group::with_topology(rank, topology).in_order(self.group_of_all().order());
        Communicator::in_core(&self.shared, core, id, group, world_ranks, self.replica)
    }
}

/// Return a number larger than all `split_counts`, and store it as this rank's split count.
fn next_number(core: &mut RankCore, split_counts: impl Iterator<Item = u64>) -> Result<u32, Error> {
    let number = split_counts.max().unwrap_or(0) + 1;
    let world_size = core.fabric.world_size() as u64;
    let limit = u64::from(u32::MAX - MAX_REPLICATED_COUNT - GROUP_ID_COUNT) / world_size - 1;
    if number > limit {
        let expected = format!("at most {limit} in a world of {world_size} ranks");
        return Err(argument("splits and groups", number, &expected));
    }
    core.split_count = number as u32;
    Ok(number as u32)
}

/// Return the id under which the members of a group exchange split counts, outside the range of communicator ids.
fn exchange_id(world_ranks: &[usize]) -> u32 {
    let bytes: Vec<u8> = world_ranks.iter().flat_map(|&rank| (rank as u64).to_le_bytes()).collect();
    u32::MAX - MAX_REPLICATED_COUNT - (hash_string(&bytes) as u32 % GROUP_ID_COUNT)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    agree::words(bytes).collect()
}
