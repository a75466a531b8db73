//! Sparse reductions with malformed data: a rank that cannot decode or store received data ends the job, because the
//! other ranks wait for its next message.

use crate::common::{bytes, values, world};
use ripieno::sparse::{SparseOptions, SparseSchema};
use ripieno::{
    BufferMemory, CollectiveTask, Communicator, Element, ElementShape, ElementType, Error, JobFailure, Op, WholeBuffer,
};

/// Make the first allreduce of a sparse reduction, as a rank with empty sets.
fn agree(comm: &Communicator) -> Result<(), Error> {
    let numbers =
        ElementType { element: Element::U64, shape: ElementShape::Described("numbers of a call of several steps") };
    let request = &CollectiveTask::Allreduce { op: Op::Max, vector: WholeBuffer };
    comm.run(request, numbers, None, [BufferMemory::Write(&mut [0; 32]), BufferMemory::Read(&[])])
}

/// Return the errors that each rank gets while configuring and in the barrier afterwards.
///
/// The last of `p` ranks runs `faulty_rank` instead. The other ranks may end the job before that rank has completed its
/// sends.
fn errors(
    p: usize,
    options: &SparseOptions,
    faulty_rank: fn(&Communicator) -> Result<(), Error>,
) -> Vec<(Option<Error>, Option<Error>)> {
    world(p, |comm| {
        let configured = match comm.rank() == p - 1 {
            true => {
                _ = faulty_rank(comm);
                None
            }
            false => comm.sparse(&[0, 1], &[1], options).err(),
        };
        (configured, comm.barrier(None).err())
    })
}

/// Check that all ranks have the same failure, with `text` in its cause, and that one rank has the exact error.
fn assert_all_fail(errors: &[(Option<Error>, Option<Error>)], is_exact: impl Fn(&Error) -> bool, text: &str) {
    let Some(Error::Failed(JobFailure::RankFailed { cause, .. })) = &errors[0].1 else { panic!("{errors:?}") };
    assert!(cause.contains(text), "{errors:?}");
    assert!(errors.iter().all(|(_, after)| *after == errors[0].1), "{errors:?}");
    assert!(errors.iter().any(|(configured, _)| configured.as_ref().is_some_and(&is_exact)), "{errors:?}");
}

/// Return options for two ranks in one layer.
fn direct() -> SparseOptions {
    SparseOptions { degrees: Some("2".parse().unwrap()), size: Some(2), ..SparseOptions::default() }
}

/// Announce `lengths`, the bytes of keys and of values, to rank 0. Return the number of bytes that rank 0 announces.
fn announce(comm: &Communicator, lengths: [i64; 2]) -> Result<usize, Error> {
    agree(comm)?;
    let mut received = [0; 16];
    comm.neighbour_exchange(&bytes(&lengths), &[(0, 2)], &mut received, &[(0, 2)], Element::U64, None)?;
    Ok(values(&received).iter().sum::<i64>() as usize)
}

/// Send `message` to rank 0 and receive its `count` bytes.
fn send_parts(comm: &Communicator, message: &[u8], count: usize) -> Result<(), Error> {
    let (peers, mut received) = ([(0, message.len())], vec![0; count]);
    comm.neighbour_exchange(message, &peers, &mut received, &[(0, count)], Element::U8, None)
}

#[test]
fn impossible_lengths_end_the_job() {
    let rank_errors = errors(2, &direct(), |comm| announce(comm, [-1, 5]).map(drop));
    let expected = "rank 1 announced 18446744073709551615 bytes of keys and 5 of values";
    assert_all_fail(&rank_errors, |error| matches!(error, Error::Malformed { .. }), expected);

    let rank_errors = errors(2, &direct(), |comm| announce(comm, [-1, 0]).map(drop));
    let expected = "no memory for 18446744073709551615 bytes";
    assert_all_fail(&rank_errors, |error| matches!(error, Error::Memory { .. }), expected);
}

#[test]
fn malformed_keys_end_the_job() {
    let rank_errors = errors(2, &direct(), |comm| {
        let count = announce(comm, [3, 0])?;
        send_parts(comm, &[9, 9, 9], count)
    });
    assert_all_fail(&rank_errors, |error| matches!(error, Error::Malformed { .. }), "unknown form of key sets");
}

#[test]
fn a_sample_that_is_too_large_ends_the_job() {
    let rank_errors = errors(4, &SparseOptions::default(), |comm| {
        agree(comm)?;
        // Both counts exceed the two keys of each kind that a sample holds.
        let mut all = bytes(&[3; 4 * 6]);
        comm.allgather(&mut all, Element::U64, &[6; 4], None)
    });
    let expected = "rank 3 sent a sample of 3 and 3 keys: expected at most 2";
    assert_all_fail(&rank_errors, |error| matches!(error, Error::Malformed { .. }), expected);
}

#[test]
fn values_that_do_not_match_their_keys_end_the_job() {
    let schema = SparseSchema { element: Element::U8, width: 1, op: Op::Sum, row: ElementShape::Vector };
    let ended = world(2, |comm| {
        let reduced = match comm.rank() {
            1 => {
                // Two sets that hold all keys of a range of one key, and five values.
                _ = announce(comm, [2, 5]).and_then(|count| send_parts(comm, &[0; 7], count));
                None
            }
            _ => comm.sparse_reduce(&[0, 1], &[1, 2], &[1], &mut [0], schema, &direct()).err(),
        };
        (reduced, comm.barrier(None).err())
    });
    let expected = "rank 1 sent 5 bytes of values for 1 keys";
    assert_all_fail(&ended, |error| matches!(error, Error::Malformed { .. }), expected);
}
