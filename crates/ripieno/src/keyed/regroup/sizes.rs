//! How much every rank has for every part, and what follows from that: homes and waves.

use super::super::block::{Form, PartSize};
use super::super::parts::Parts;
use super::encoding::encoded_bytes;
use super::options::{Agreement, Regroup};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::seat::NO_MEMORY;
use crate::sparse::agree::{all_words, words};
use ripieno_plan::algorithms::alltoall::direct;
use ripieno_plan::regroup::{Waves, balanced_homes, hashed_homes};
use ripieno_plan::{Buffer, Span};
use ripieno_run::Memory;

/// The size of a part is told by so many bytes.
const TOLD_BYTES: usize = 24;

/// What all ranks know of the parts, and what this one does of those that are at home with it.
pub(super) struct Sizes {
    pub waves: Waves,
    own: Own,
}

/// The parts that are at home at this rank.
struct Own {
    /// Ascending.
    parts: Vec<usize>,
    /// By rank, for each of them: what comes from there.
    sizes: Vec<Vec<PartSize>>,
}

impl Sizes {
    /// Tells the sizes of `parts` to their homes, and all ranks how large each part is.
    pub fn exchange(
        comm: &Communicator,
        parts: &Parts,
        agreement: &mut Agreement,
        options: &Regroup,
    ) -> Result<Sizes, Error> {
        let (part_count, p) = (parts.part_count(), comm.world_size());
        let mut homes = hashed_homes(part_count, p);
        let mut own = Own::told(comm, parts, agreement, &homes)?;
        let part_bytes = all_words(comm, &own.bytes(parts.form())?)?;
        if options.balanced {
            homes = balanced_homes(&part_bytes, p);
            own = Own::told(comm, parts, agreement, &homes)?;
        }
        Ok(Sizes { waves: Waves::new(&homes, &part_bytes, p, options.wave_bytes), own })
    }

    /// What comes from rank `from` for `part`, which is at home here.
    pub fn incoming(&self, from: usize, part: usize) -> PartSize {
        let place = self.own.parts.binary_search(&part).expect("the part is at home here");
        self.own.sizes[from][place]
    }
}

impl Own {
    /// Every rank tells the sizes of its parts to their homes.
    fn told(comm: &Communicator, parts: &Parts, agreement: &mut Agreement, homes: &[usize]) -> Result<Own, Error> {
        let (rank, p) = (comm.rank(), comm.world_size());
        let (mut out, mut lengths) = (Vec::new(), Vec::new());
        for home in 0..p {
            let before = out.len();
            for part in (0..homes.len()).filter(|&part| homes[part] == home) {
                let PartSize { keys, key_bytes, rows } = parts.size(part);
                [keys, key_bytes, rows].iter().for_each(|number| out.extend_from_slice(&number.to_ne_bytes()));
            }
            lengths.push(out.len() - before);
        }
        let own: Vec<usize> = (0..homes.len()).filter(|&part| homes[part] == rank).collect();
        let mut into = vec![0; p * own.len() * TOLD_BYTES];
        let whole = |buffer, length| Span::whole(buffer, length, 1);
        let out_chunks = whole(Buffer::MAIN, out.len()).split(&lengths);
        let in_chunks = whole(Buffer::OUTPUT, into.len()).split(&vec![own.len() * TOLD_BYTES; p]);
        let plan = direct::plan(&comm.group, &out_chunks, &in_chunks);
        let buffers = [Memory::Read(&out), Memory::Write(&mut into), NO_MEMORY];
        comm.run_given(agreement.next_call(), plan, buffers)?;

        let mut numbers = words(&into);
        let mut next = || numbers.next().expect("three numbers for each part and rank");
        let mut size = |_: &usize| PartSize { keys: next(), key_bytes: next(), rows: next() };
        let sizes = (0..p).map(|_| own.iter().map(&mut size).collect()).collect();
        Ok(Own { parts: own, sizes })
    }

    /// How many bytes each part takes, of all ranks together.
    fn bytes(&self, form: &Form) -> Result<Vec<u64>, Error> {
        let of_part = |place: usize| {
            let mut sizes = self.sizes.iter().enumerate();
            sizes.try_fold(0u64, |sum, (rank, sizes)| {
                let bytes = encoded_bytes(form, sizes[place]).and_then(|bytes| sum.checked_add(bytes));
                bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| {
                    let (part, PartSize { keys, key_bytes, rows }) = (self.parts[place], sizes[place]);
                    let cause = format!(
                        "rank {rank} announced {keys} keys of {key_bytes} bytes with {rows} rows for part {part}"
                    );
                    Error::Malformed { cause }
                })
            })
        };
        (0..self.parts.len()).map(of_part).collect()
    }
}
