//! Exchange of part sizes. Ranks derive owners and waves from the sizes. The same message carries the announcements.

use super::super::block::{KeyedSchema, PartSize};
use super::super::parts::Parts;
use super::agreement::{AgreedSchema, Announcement};
use super::encoding::encoded_bytes;
use super::options::{Regroup, Steps};
use crate::agree::{all_words, combined_words, words};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::owned_buffers::NO_MEMORY;
use ripieno_plan::algorithms::alltoall::direct;
use ripieno_plan::regroup::{Waves, balanced_owners, hashed_owners, loads};
use ripieno_plan::{Buffer, Op, Span};
use ripieno_run::BufferMemory;

/// Encoded size of a `PartSize`.
const ANNOUNCED_BYTES: usize = 24;

/// The waves, and the sizes of the parts that this rank owns.
pub(super) struct RegroupSizes {
    pub waves: Waves,
    owned: OwnedParts,
}

/// The parts that this rank owns.
struct OwnedParts {
    /// Part numbers, ascending.
    parts: Vec<usize>,
    /// For each rank, the sizes of its rows of these parts.
    sizes: Vec<Vec<PartSize>>,
}

impl RegroupSizes {
    /// Send the sizes of `parts` to their owners, preceded by this rank's announcement. Ranks without rows adopt the
    /// schema of the other ranks.
    ///
    /// If one wave suffices and owners do not depend on sizes, no further exchange follows. Otherwise, an allgather
    /// sends the size of each part to all ranks.
    pub fn exchange(
        comm: &Communicator,
        parts: &mut Parts,
        steps: &mut Steps,
        options: &Regroup,
    ) -> Result<(RegroupSizes, AgreedSchema), Error> {
        let (part_count, p) = (parts.part_count(), comm.world_size());
        let sizes: Vec<PartSize> = (0..part_count).map(|part| parts.size(part)).collect();
        let bytes: Vec<u64> = sizes
            .iter()
            .map(|&size| encoded_bytes(parts.schema(), size).expect("parts in memory have an encoded size"))
            .collect();
        let Regroup { call, balanced, merge, .. } = *options;
        let announced = Announcement { call, balanced, schema: *parts.schema(), merge, size_bytes: bytes.iter().sum() };
        let mut owners = hashed_owners(part_count, p);
        let (mut owned, all_announced) = OwnedParts::exchange(comm, &sizes, &announced.words(), steps, &owners)?;
        let agreed = AgreedSchema::of(&announcements(&all_announced)?)?;
        if announced.size_bytes == 0 {
            parts.adopt(agreed.schema);
        }
        let own_bytes = owned.bytes(&agreed.schema)?;
        let max_bytes = agreed.size_bytes;
        if !balanced && max_bytes <= options.wave_bytes_of(max_bytes) {
            // For parts of other owners, this rank only needs the size of its own rows.
            let mut known_bytes = bytes;
            owned.parts.iter().zip(&own_bytes).for_each(|(&part, &bytes)| known_bytes[part] = bytes);
            let waves = Waves::single(&owners, &known_bytes, p, max_bytes > 0);
            return Ok((RegroupSizes { waves, owned }, agreed));
        }
        let part_bytes = all_words(comm, &own_bytes)?;
        if part_bytes.iter().try_fold(0u64, |sum, &bytes| sum.checked_add(bytes)).is_none() {
            return Err(Error::Malformed { cause: "the announced sizes of all parts overflow".to_string() });
        }
        if balanced {
            owners = balanced_owners(&part_bytes, p);
            (owned, _) = OwnedParts::exchange(comm, &sizes, &[], steps, &owners)?;
            let mut announced = owned.parts.iter().zip(owned.bytes(&agreed.schema)?);
            if let Some((part, _)) = announced.find(|&(&part, bytes)| part_bytes[part] != bytes) {
                return Err(Error::Malformed { cause: format!("ranks announced part {part} with two sizes") });
            }
        }
        let max_bytes = loads(&owners, &part_bytes, p).into_iter().max().unwrap_or(0);
        let waves = Waves::new(&owners, &part_bytes, p, options.wave_bytes_of(max_bytes));
        Ok((
            RegroupSizes { waves: limit_sent_bytes(comm, waves, &part_bytes, &bytes, options.wave_bytes)?, owned },
            agreed,
        ))
    }

    /// Return the size of the rows that rank `from` sends for `part`, which this rank owns.
    pub fn incoming(&self, from: usize, part: usize) -> PartSize {
        let place = self.owned.parts.binary_search(&part).expect("this rank owns the part");
        self.owned.sizes[from][place]
    }
}

/// Shorten the waves until no rank sends more than twice `wave_bytes` in one of them. `bytes` are the sizes of this
/// rank's rows of each part.
fn limit_sent_bytes(
    comm: &Communicator,
    mut waves: Waves,
    part_bytes: &[u64],
    bytes: &[u64],
    wave_bytes: u64,
) -> Result<Waves, Error> {
    let (rank, p) = (comm.rank(), comm.world_size());
    // No rank sends more than the total of all ranks.
    if p == 1 || part_bytes.iter().sum::<u64>() <= wave_bytes.saturating_mul(2) {
        return Ok(waves);
    }
    loop {
        let sent_bytes = |wave: usize| -> u64 {
            let others = (0..p).filter(|&to| to != rank);
            others.flat_map(|to| waves.parts(to, wave)).map(|&part| bytes[part]).sum()
        };
        let sent_bytes: Vec<u64> = (0..waves.count()).map(sent_bytes).collect();
        match waves.cut(part_bytes, &combined_words(comm, &sent_bytes, Op::Max)?, wave_bytes) {
            Some(cut) => waves = cut,
            None => return Ok(waves),
        }
    }
}

/// Decode the announcements of all ranks, ordered by rank.
fn announcements(announced: &[Vec<u64>]) -> Result<Vec<Announcement>, Error> {
    let read = |(rank, words): (usize, &Vec<u64>)| {
        let words = words[..].try_into().expect("every announcement has the same size");
        let malformed = || Error::Malformed { cause: format!("rank {rank} sent an invalid announcement") };
        Announcement::read(words).ok_or_else(malformed)
    };
    announced.iter().enumerate().map(read).collect()
}

impl OwnedParts {
    /// Send the sizes of this rank's rows to the owners of the parts, preceded by `prefix`. Also returns the prefixes
    /// of all ranks.
    fn exchange(
        comm: &Communicator,
        sizes: &[PartSize],
        prefix: &[u64],
        steps: &mut Steps,
        owners: &[usize],
    ) -> Result<(OwnedParts, Vec<Vec<u64>>), Error> {
        let (rank, p) = (comm.rank(), comm.world_size());
        let mut by_owner = vec![Vec::new(); p];
        owners.iter().enumerate().for_each(|(part, &owner)| by_owner[owner].push(part));
        let length = |parts: &Vec<usize>| size_of_val(prefix) + parts.len() * ANNOUNCED_BYTES;
        let lengths: Vec<usize> = by_owner.iter().map(length).collect();
        let mut out = Vec::with_capacity(lengths.iter().sum());
        for parts in &by_owner {
            let numbers = parts.iter().flat_map(|&part| {
                let PartSize { keys, key_bytes, rows } = sizes[part];
                [keys, key_bytes, rows]
            });
            out.extend(prefix.iter().copied().chain(numbers).flat_map(u64::to_ne_bytes));
        }
        let (own, own_bytes) = (by_owner.swap_remove(rank), lengths[rank]);
        let mut into = vec![0; p * own_bytes];
        let whole = |buffer, length| Span::whole(buffer, length, 1);
        let out_chunks = whole(Buffer::MAIN, out.len()).split(&lengths);
        let in_chunks = whole(Buffer::OUTPUT, into.len()).split(&vec![own_bytes; p]);
        let plan = direct::plan(&comm.group_of_all(), &out_chunks, &in_chunks);
        let buffers = [BufferMemory::Read(&out), BufferMemory::Write(&mut into), NO_MEMORY];
        comm.run_uncatalogued(steps.next_call(comm)?, plan, buffers)?;

        let mut numbers = words(&into);
        let mut next = || numbers.next().expect("every rank sends as many numbers");
        let (mut all_prefixes, mut all_sizes) = (Vec::new(), Vec::new());
        for _ in 0..p {
            all_prefixes.push(prefix.iter().map(|_| next()).collect());
            all_sizes.push(own.iter().map(|_| PartSize { keys: next(), key_bytes: next(), rows: next() }).collect());
        }
        Ok((OwnedParts { parts: own, sizes: all_sizes }, all_prefixes))
    }

    /// Return the size of each part, summed over all ranks. Fails if the total exceeds the address space.
    fn bytes(&self, schema: &KeyedSchema) -> Result<Vec<u64>, Error> {
        let (mut part_bytes, mut total_bytes) = (vec![0; self.parts.len()], 0u64);
        for (rank, sizes) in self.sizes.iter().enumerate() {
            for ((&size, sum), part) in sizes.iter().zip(&mut part_bytes).zip(&self.parts) {
                let bytes = encoded_bytes(schema, size);
                let total = bytes.and_then(|bytes| total_bytes.checked_add(bytes));
                let (Some(bytes), Some(total)) = (bytes, total.filter(|&total| isize::try_from(total).is_ok())) else {
                    let PartSize { keys, key_bytes, rows } = size;
                    let announced = format!("{keys} keys of {key_bytes} bytes with {rows} rows");
                    return Err(Error::Malformed {
                        cause: format!("rank {rank} announced {announced} for part {part}"),
                    });
                };
                *sum += bytes;
                total_bytes = total;
            }
        }
        Ok(part_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Aggregation, KeyKind, KeyedCombine};
    use super::*;
    use crate::{Element, JobFailure};
    use ripieno_kernels::Threads;
    use ripieno_net::ThreadFabric;

    const SCHEMA: KeyedSchema = KeyedSchema {
        keys: KeyKind::Int64,
        element: Element::F64,
        width: 1,
        combine: KeyedCombine::Op(Op::Sum),
        label: 0,
    };

    fn no_rows(schema: KeyedSchema) -> Aggregation {
        Aggregation::new(schema, 2, None).unwrap()
    }

    /// Run a regroup in which rank 1 announces false sizes: `sizes[i]` for all its parts in exchange `i`. Return the
    /// results of both ranks.
    fn regroup_with_false_sizes(schema: KeyedSchema, options: &Regroup, sizes: &[PartSize]) -> [Result<(), Error>; 2] {
        let fabrics = ThreadFabric::group(2).unwrap();
        let false_size = |comm: &Communicator| {
            let parts = no_rows(schema).seal(&Threads::new(1)).unwrap();
            let none = vec![0; parts.part_count()];
            let mut steps = Steps::new(none.len(), options);
            let Regroup { call, balanced, merge, .. } = *options;
            let sent = Announcement { call, balanced, schema, merge, size_bytes: 1 }.words();
            for (turn, &size) in sizes.iter().enumerate() {
                let owners = if turn == 0 { hashed_owners(none.len(), 2) } else { balanced_owners(&none, 2) };
                let prefix = if turn == 0 { &sent[..] } else { &[] };
                OwnedParts::exchange(comm, &vec![size; parts.part_count()], prefix, &mut steps, &owners)?;
                if turn + 1 < sizes.len() {
                    all_words(comm, &none[none.len() / 2..])?;
                }
            }
            comm.barrier(None)
        };
        std::thread::scope(|scope| {
            let ranks: Vec<_> = fabrics.into_iter().map(|fabric| Communicator::new(Box::new(fabric))).collect();
            let mut ranks = ranks.into_iter();
            let (correct_rank, faulty_rank) = (ranks.next().unwrap(), ranks.next().unwrap());
            let faulty_rank = scope.spawn(move || false_size(&faulty_rank));
            let outcome = correct_rank.regroup(no_rows(schema), options, &mut |_, _| Ok(())).map(drop);
            [outcome, faulty_rank.join().unwrap()]
        })
    }

    #[test]
    fn impossible_sizes_end_the_job() {
        let concat = KeyedSchema { combine: KeyedCombine::Concat, ..SCHEMA };
        let strings = KeyedSchema { keys: KeyKind::Strings, ..SCHEMA };
        let size = |keys, key_bytes, rows| PartSize { keys, key_bytes, rows };
        let cases = [
            (SCHEMA, size(1, 7, 1), "1 keys of 7 bytes with 1 rows"),
            (SCHEMA, size(2, 16, 3), "2 keys of 16 bytes with 3 rows"),
            (SCHEMA, size(1 << 61, 1 << 63, 1 << 61), "keys"),
            (SCHEMA, size(1 << 57, 1 << 60, 1 << 57), "keys"),
            (concat, size(3, 24, 2), "3 keys of 24 bytes with 2 rows"),
            (concat, size(1, 8, u64::MAX), "rows"),
            (strings, size(0, 5, 0), "0 keys of 5 bytes with 0 rows"),
            (strings, size(u64::MAX, 5, u64::MAX), "keys"),
        ];
        for (schema, false_size, text) in cases {
            let [outcome, after] = regroup_with_false_sizes(schema, &Regroup::new(schema.combine), &[false_size]);
            let Err(Error::Malformed { cause }) = outcome else { panic!("{outcome:?}") };
            assert!(cause.starts_with("rank 1 announced") && cause.contains(text), "{cause}");
            assert!(matches!(after, Err(Error::Failed(JobFailure::RankFailed { rank: 0, .. }))), "{after:?}");
        }
    }

    #[test]
    fn different_sizes_for_different_owners_end_the_job() {
        let options = Regroup { balanced: true, ..Regroup::new(SCHEMA.combine) };
        let sizes = [PartSize::default(), PartSize { keys: 1, key_bytes: 8, rows: 1 }];
        let [outcome, after] = regroup_with_false_sizes(SCHEMA, &options, &sizes);
        assert!(matches!(&outcome, Err(Error::Malformed { cause }) if cause.contains("two sizes")), "{outcome:?}");
        assert!(after.is_err());
    }
}
