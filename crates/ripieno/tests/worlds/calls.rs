//! The calls of a rank program: collectives and messages, each with a check of its result.

use crate::program::RankProgram;
use ripieno::{BufferMemory, Element, Error, Op};

impl RankProgram {
    /// Return the element at `place` of the contribution of `rank` to `step`.
    fn element(&self, rank: usize, step: usize, place: usize) -> i64 {
        let contributor = self.logical.as_ref().map_or_else(|| self.first_ranks[rank], |_| rank);
        1000 * (contributor as i64 + 1) + 7 * step as i64 + place as i64
    }

    /// Run the call selected by `step` and check its result.
    pub fn call(&self, step: usize) -> Result<(), Error> {
        let comm = self.calls();
        let (p, rank) = (comm.world_size(), comm.rank());
        let count = [1, 5, 40, 300, 2000][step * 3 % 5];
        let root = step % p;
        let element = |rank: usize, place: usize| self.element(rank, step, place);
        let own: Vec<i64> = (0..count).map(|place| element(rank, place)).collect();
        let sum = |ranks: usize, place: usize| (0..ranks).map(|rank| element(rank, place)).sum::<i64>();
        let sums: Vec<i64> = (0..count).map(|place| sum(p, place)).collect();
        let counts = vec![count; p];
        let gathered: Vec<i64> =
            (0..p).flat_map(|rank| (0..count).map(move |place| (rank, place))).map(|(r, i)| element(r, i)).collect();
        let mut vector = to_bytes(&own);
        let mut all = to_bytes(&vec![-1; p * count]);
        let own_chunk = 8 * rank * count..8 * (rank + 1) * count;
        all[own_chunk.clone()].copy_from_slice(&vector);
        // The message omits the values, because they differ between ranks.
        let check =
            |got: &[u8], expected: &[i64]| assert!(from_bytes(got) == expected, "step {step}: wrong bytes on {rank}");
        match (step + self.scheduler.scenario().steps) % 12 {
            0 => {
                comm.allreduce(&mut vector, Element::I64, Op::Sum, None)?;
                check(&vector, &sums);
            }
            1 => {
                comm.broadcast(BufferMemory::Write(&mut vector), Element::I64, root, None)?;
                check(&vector, &(0..count).map(|place| element(root, place)).collect::<Vec<_>>());
            }
            2 => {
                comm.reduce(&mut vector, Element::I64, Op::Sum, root, None)?;
                if rank == root {
                    check(&vector, &sums);
                }
            }
            3 => {
                comm.allgather(&mut all, Element::I64, &counts, None)?;
                check(&all, &gathered);
            }
            4 => {
                let mut chunks = to_bytes(&(0..p * count).map(|place| element(rank, place)).collect::<Vec<_>>());
                comm.reduce_scatter(&mut chunks, Element::I64, &counts, Op::Sum, None)?;
                let expected: Vec<i64> = (rank * count..(rank + 1) * count).map(|place| sum(p, place)).collect();
                check(&chunks[own_chunk], &expected);
            }
            5 => {
                comm.gather(&mut all, Element::I64, &counts, root, None)?;
                if rank == root {
                    check(&all, &gathered);
                }
            }
            6 => {
                let mut scattered = if rank == root { to_bytes(&gathered) } else { all };
                comm.scatter(BufferMemory::Write(&mut scattered), Element::I64, &counts, root, None)?;
                check(&scattered[own_chunk], &own);
            }
            7 => {
                let out = to_bytes(&(0..p * count).map(|place| element(rank, place)).collect::<Vec<_>>());
                comm.alltoall(&out, &counts, &mut all, &counts, Element::I64, None)?;
                let chunk = rank * count..(rank + 1) * count;
                let expected: Vec<i64> = (0..p)
                    .flat_map(|from| chunk.clone().map(move |at| (from, at)))
                    .map(|(r, i)| element(r, i))
                    .collect();
                check(&all, &expected);
            }
            8 => {
                comm.scan(&mut vector, Element::I64, Op::Sum, None)?;
                check(&vector, &(0..count).map(|place| sum(rank + 1, place)).collect::<Vec<_>>());
            }
            9 if p > 1 => {
                // Each rank sends to the next one.
                if rank > 0 {
                    comm.receive(&mut vector, Element::I64, rank - 1)?;
                    check(&vector, &(0..count).map(|place| element(rank - 1, place)).collect::<Vec<_>>());
                }
                if rank + 1 < p {
                    comm.send(&to_bytes(&own), Element::I64, rank + 1)?;
                }
            }
            10 if p > 1 => {
                // A message overlaps a collective. Some ranks receive before the collective, others after it.
                let distance = 1 + step % (p - 1);
                let (to, from) = ((rank + distance) % p, (rank + p - distance) % p);
                let expected = [element(from, 0), element(from, 1)].map(|value| to_bytes(&[value]));
                let received_before = (step + rank) % 3;
                for value in [element(rank, 0), element(rank, 1)] {
                    comm.send(&to_bytes(&[value]), Element::I64, to)?;
                }
                let mut message = to_bytes(&[-1]);
                for place in 0..3 {
                    if place == received_before {
                        comm.allreduce(&mut vector, Element::I64, Op::Sum, None)?;
                    }
                    if let Some(expected) = expected.get(place) {
                        comm.receive(&mut message, Element::I64, from)?;
                        assert!(message == *expected, "step {step}: wrong message from {from} on {rank}");
                    }
                }
                check(&vector, &sums);
            }
            _ if self.logical.is_none() => {
                let color = (rank % 2) as u32;
                if let Some(part) = comm.split(Some(color), rank as i64)? {
                    part.allreduce(&mut vector, Element::I64, Op::Sum, None)?;
                    let of_color =
                        |place| (0..p).filter(|other| other % 2 == rank % 2).map(|r| element(r, place)).sum();
                    check(&vector, &(0..count).map(of_color).collect::<Vec<_>>());
                }
            }
            _ => comm.barrier(None)?,
        }
        Ok(())
    }
}

/// Return the native bytes of `values`.
pub fn to_bytes(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Return the values with these native bytes.
pub fn from_bytes(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|value| i64::from_ne_bytes(value.try_into().expect("eight bytes"))).collect()
}
