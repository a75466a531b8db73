//! Tests of the flight recorder: records, waits and gauges.

use super::*;
use crate::call::{Call, CallKind, Element, Header};
use crate::fabric::LinkId;
use ripieno_plan::{Algorithm, Collective, Op};

fn record(bytes: u64, peer_count: u16) -> CollectiveRecord {
    let kind = CallKind::Catalogued {
        collective: Collective::Allreduce,
        algorithm: Algorithm::by_name(Collective::Allreduce, "ring").unwrap().index,
        op: Some(Op::Sum),
        root: 0,
        element_count: 10,
    };
    let call = Call { kind, element: Element::F32, signature: 0 };
    CollectiveRecord::of(&Header { communicator: 0, sequence: 0, call }, bytes, peer_count)
}

fn begin(recorder: &mut Recorder, sequence: u64) -> OpenRecord {
    recorder.begin(&record(40, 2), sequence, None)
}

fn from(peer: usize) -> LinkInterest {
    LinkInterest { link: LinkId::collectives(peer), readable: true, writable: false }
}

fn to(peer: usize) -> LinkInterest {
    LinkInterest { link: LinkId::collectives(peer), readable: false, writable: true }
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn wait(recorder: &mut Recorder, ticket: OpenRecord, interests: &[LinkInterest], since: Duration, until: Duration) {
    recorder.begin_wait(ticket, interests, since);
    recorder.end_wait(ticket, until);
}

fn only(recorder: &Recorder) -> CollectiveRecord {
    recorder.latest(1, ms(100)).last().unwrap().1
}

#[test]
fn a_full_recorder_overwrites_the_oldest_records() {
    let mut recorder = Recorder::new(4);
    assert_eq!(recorder.latest(10, ms(0)).count(), 0);

    for sequence in 0..11 {
        let ticket = begin(&mut recorder, sequence);
        recorder.end(ticket, CollectiveOutcome::Done, || panic!("the clock is not read"));
    }

    let latest =
        |count| recorder.latest(count, ms(0)).map(|(number, record)| (number, record.sequence)).collect::<Vec<_>>();
    assert_eq!(latest(10), [(7, 7), (8, 8), (9, 9), (10, 10)]);
    assert_eq!(latest(2), [(9, 9), (10, 10)]);
}

#[test]
fn a_call_that_never_waited_and_was_not_clocked_has_no_times() {
    let mut recorder = Recorder::new(4);
    let ticket = begin(&mut recorder, 3);
    recorder.end(ticket, CollectiveOutcome::Done, || panic!("the clock is not read"));

    let record = only(&recorder);
    assert_eq!((record.start(), record.end(), record.moving(), record.waited_for()), (None, None, None, None));
    assert_eq!(record.waiting(), Duration::ZERO);
    assert_eq!(record.to_string(), "allreduce #3 (ring, sum of float32 × 10)");
}

#[test]
fn the_peer_that_was_awaited_longest_is_named() {
    let mut recorder = Recorder::new(4);
    let ticket = recorder.begin(&record(40, 3), 0, Some(ms(1)));
    wait(&mut recorder, ticket, &[from(1), from(2)], ms(2), ms(6));
    wait(&mut recorder, ticket, &[from(2)], ms(7), ms(10));
    wait(&mut recorder, ticket, &[from(3)], ms(11), ms(15));
    recorder.end(ticket, CollectiveOutcome::Done, || ms(20));

    let record = only(&recorder);
    assert_eq!(record.waited_for(), Some(2));
    assert_eq!((record.waiting(), record.moving()), (ms(11), Some(ms(8))));
    assert_eq!(recorder.waited_for(), [ms(0), ms(2), ms(5), ms(4)]);
    assert_eq!(record.to_string(), "allreduce #0 (ring, sum of float32 × 10), 19.0 ms, waiting 11.0 ms for rank 2");
}

#[test]
fn a_full_receiver_is_awaited_only_if_no_bytes_are_awaited() {
    let mut recorder = Recorder::new(4);
    let ticket = begin(&mut recorder, 0);
    wait(&mut recorder, ticket, &[to(1), from(2)], ms(0), ms(1));
    wait(&mut recorder, ticket, &[to(1)], ms(1), ms(3));
    assert_eq!(recorder.waited_for(), [ms(0), ms(2), ms(1)]);
}

#[test]
fn collectives_in_flight_are_recorded_separately() {
    let mut recorder = Recorder::new(4);
    let (first, second) = (begin(&mut recorder, 0), begin(&mut recorder, 1));
    wait(&mut recorder, first, &[from(1)], ms(0), ms(3));
    wait(&mut recorder, second, &[from(2)], ms(0), ms(3));
    wait(&mut recorder, first, &[from(2)], ms(3), ms(5));
    recorder.end(second, CollectiveOutcome::Failed, || ms(6));

    let records: Vec<CollectiveRecord> = recorder.latest(2, ms(9)).map(|(_, record)| record).collect();
    assert_eq!((records[0].outcome, records[0].waited_for()), (CollectiveOutcome::InFlight, Some(1)));
    assert_eq!((records[1].outcome, records[1].waited_for()), (CollectiveOutcome::Failed, Some(2)));
    assert_eq!(records[0].to_string(), "in allreduce #0 (ring, sum of float32 × 10), waiting 5.0 ms for rank 1");
}

#[test]
fn long_waits_are_listed_separately() {
    let mut recorder = Recorder::new(2);
    let ticket = begin(&mut recorder, 0);
    wait(&mut recorder, ticket, &[from(1)], ms(0), MIN_LISTED_WAIT / 2);
    for at in 1..4 {
        wait(&mut recorder, ticket, &[from(1), from(5)], ms(at), ms(at + 1));
    }

    let wait = |at| StallInterval { number: 0, peer: 1, peer_count: 2, since: ms(at), until: ms(at + 1) };
    assert_eq!(recorder.waits().copied().collect::<Vec<_>>(), [wait(2), wait(3)]);
    assert_eq!(only(&recorder).waiting(), ms(3) + MIN_LISTED_WAIT / 2);
}

#[test]
fn a_call_in_flight_names_the_peer_it_waits_for() {
    let mut recorder = Recorder::new(2);
    let ticket = begin(&mut recorder, 5);
    wait(&mut recorder, ticket, &[from(1)], ms(0), ms(2));
    recorder.begin_wait(ticket, &[from(3)], ms(4));
    recorder.begin_wait(ticket, &[from(1)], ms(5));

    let record = only(&recorder);
    assert_eq!((record.waiting(), record.waited_for(), record.end()), (ms(98), Some(3), Some(ms(100))));

    recorder.end(ticket, CollectiveOutcome::Failed, || ms(1004));
    let text = "in allreduce #5 (ring, sum of float32 × 10), waiting 1.0 s for rank 3";
    assert_eq!(only(&recorder).to_string(), text);
    assert_eq!(recorder.waited_for(), [ms(0), ms(2), ms(0), ms(1000)]);
}

#[test]
fn a_collective_without_its_record_changes_no_other_record() {
    let mut recorder = Recorder::new(2);
    let first = begin(&mut recorder, 0);
    recorder.begin_wait(first, &[from(1)], ms(1));
    for sequence in 1..3 {
        let ticket = recorder.begin(&record(40, 2), sequence, Some(ms(2)));
        recorder.end(ticket, CollectiveOutcome::Done, || ms(3));
    }
    let newer = |recorder: &Recorder| recorder.latest(2, ms(9)).map(|(_, record)| record).collect::<Vec<_>>();
    let before = newer(&recorder);

    assert_eq!(recorder.end(first, CollectiveOutcome::Failed, || ms(5)), None);

    assert_eq!(newer(&recorder), before);
    assert_eq!(recorder.waited_for(), [ms(0), ms(4)], "its wait counts");
}

#[test]
fn a_gauge_counts_after_its_first_reading_and_includes_the_current_wait() {
    let mut recorder = Recorder::default();
    let ticket = recorder.begin(&record(8, 1), 0, None);
    recorder.enter(ticket, None);
    recorder.end(ticket, CollectiveOutcome::Done, || ms(1));
    recorder.leave(|| ms(1));
    assert_eq!(recorder.gauge.read(ms(1)).called, ms(0));

    let ticket = recorder.begin(&record(1 << 20, 2), 0, Some(ms(10)));
    recorder.enter(ticket, None);
    recorder.begin_wait(ticket, &[from(3), from(1)], ms(12));
    let seen = recorder.gauge.read(ms(16));
    assert_eq!((seen.called, seen.waited), (ms(6), ms(4)));
    assert_eq!(seen.current.and_then(|current| current.waits), Some((3, ms(12))));

    recorder.end_wait(ticket, ms(18));
    recorder.end(ticket, CollectiveOutcome::Done, || ms(20));
    recorder.leave(|| ms(20));
    let traffic = RunTraffic { sent_bytes: 96, received_bytes: 7, ..RunTraffic::default() };
    recorder.count(&record(1 << 20, 2), &traffic, [(1, 32), (3, 64)].into_iter());

    let seen = recorder.gauge.read(ms(30));
    assert_eq!((seen.called, seen.waited, seen.current), (ms(10), ms(6), None));
    assert_eq!((seen.waited_for, seen.sent_to), (vec![ms(0), ms(3), ms(0), ms(3)], vec![0, 32, 0, 64]));
    assert_eq!((seen.call_count, seen.received_bytes, seen.usage[0].sent_bytes), (1, 7, 96));
}

#[test]
fn a_gauge_shows_the_current_wait_of_the_program_without_an_earlier_reading() {
    let mut recorder = Recorder::default();
    let ticket = recorder.begin(&record(8, 1), 0, None);
    recorder.begin_wait(ticket, &[from(2)], ms(1));
    assert!(recorder.gauge.stalled(ms(5)).is_none());
    recorder.enter(ticket, Some(ms(3)));
    let stalled = recorder.gauge.stalled(ms(5)).expect("the program waits");
    assert_eq!((stalled.waited_for(), stalled.waiting()), (Some(2), ms(2)));
    recorder.end_wait(ticket, ms(6));
    assert!(recorder.gauge.stalled(ms(7)).is_none());

    recorder.begin_wait(ticket, &[from(3)], ms(8));
    assert_eq!(recorder.gauge.stalled(ms(9)).and_then(|stalled| stalled.waited_for()), Some(3));
    recorder.end(ticket, CollectiveOutcome::Interrupted, || ms(10));
    recorder.leave(|| ms(10));
    assert!(recorder.gauge.stalled(ms(11)).is_none());
}

#[test]
fn a_gauge_excludes_calls_that_the_program_does_not_wait_for() {
    let mut recorder = Recorder::default();
    recorder.gauge.read(ms(0));

    let ticket = recorder.begin(&record(1 << 20, 1), 0, Some(ms(10)));
    recorder.begin_wait(ticket, &[from(1)], ms(12));
    recorder.enter(ticket, Some(ms(15)));
    recorder.end_wait(ticket, ms(18));
    recorder.end(ticket, CollectiveOutcome::Done, || ms(20));
    recorder.leave(|| ms(20));

    let seen = recorder.gauge.read(ms(30));
    assert_eq!((seen.called, seen.waited), (ms(5), ms(3)));
    assert_eq!(seen.waited_for, vec![ms(0), ms(3)]);
}

#[test]
fn of_several_calls_in_flight_the_longest_wait_is_known_until_it_ends() {
    let mut recorder = Recorder::new(4);
    let stalled = |recorder: &Recorder| {
        recorder.gauge.stalled(ms(50)).map(|record| (record.sequence, record.waited_for(), record.waiting()))
    };
    let first = begin(&mut recorder, 0);
    recorder.enter(first, None);
    recorder.begin_wait(first, &[from(1)], ms(2));
    let second = begin(&mut recorder, 1);
    recorder.begin_wait(second, &[from(2)], ms(5));
    assert_eq!(stalled(&recorder), Some((0, Some(1), ms(48))));

    // Data of the second call arrive repeatedly.
    recorder.end_wait(second, ms(10));
    recorder.begin_wait(second, &[from(3)], ms(11));
    assert_eq!(stalled(&recorder), Some((0, Some(1), ms(48))));

    recorder.end_wait(first, ms(20));
    assert_eq!(stalled(&recorder), Some((1, Some(3), ms(44))));
    recorder.end_wait(second, ms(30));
    assert_eq!(stalled(&recorder), None);
}

#[test]
fn a_wait_of_a_call_whose_record_was_overwritten_shows_no_other_call() {
    let mut recorder = Recorder::new(1);
    let first = begin(&mut recorder, 0);
    begin(&mut recorder, 1);
    recorder.enter(first, None);
    recorder.begin_wait(first, &[from(1)], ms(2));
    assert_eq!(recorder.gauge.stalled(ms(50)).map(|record| record.sequence), None);
}
