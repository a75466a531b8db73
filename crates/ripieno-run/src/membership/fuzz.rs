//! Fuzzing with damaged messages of peers: machines accept or reject them, and never panic.

use super::agreement::{Agreement, AgreementEvent as Received, AgreementMessage, AgreementTimeouts, Ballot};
use super::inquiry::tests::{allreduce, barrier};
use super::message::{WireCall, WireHeader};
use super::*;
use crate::call::{DescribedCall, HEADER_BYTES};
use ripieno_fuzz::Fuzz;

const WORLD_SIZE: usize = 4;
const TIMING: MembershipTiming =
    MembershipTiming { join_timeout: Duration::from_secs(5), heartbeat_timeout: Duration::from_secs(1) };
const TIMEOUTS: AgreementTimeouts = AgreementTimeouts { silence: Duration::from_secs(1), late: Duration::from_secs(5) };

fn messages() -> Vec<MembershipMessage> {
    let call: WireCall = DescribedCall { header: barrier(7), signature: "shape (2, 3)".into() }.into();
    let ballot = Ballot { round: 2, rank: 3 };
    let failure = rank_failed(2, &["a".into()], "it died");
    let text = [
        AgreementMessage::Query { epoch: 0 },
        AgreementMessage::Prepare { epoch: 0, ballot },
        AgreementMessage::Present { epoch: 0, ballot, address: Some("here".into()), accepted: Some((ballot, vec![1])) },
        AgreementMessage::Withdrawn { epoch: 0, accepted: None },
        AgreementMessage::Address { epoch: 0, rank: 1, address: "there".into() },
        AgreementMessage::Propose { epoch: 0, ballot, excluded: vec![1, 2] },
        AgreementMessage::Accept { epoch: 0, ballot },
        AgreementMessage::Decide { epoch: 0, excluded: vec![1] },
    ];
    let messages = [
        MembershipMessage::Heartbeat,
        MembershipMessage::Complete,
        MembershipMessage::Report(failure.clone()),
        MembershipMessage::Suspect { peer: 3, cause: "reset".into() },
        MembershipMessage::Failed(JobFailure::Mismatch { description: "they differ".into() }),
        MembershipMessage::Stalled { call: call.clone(), peers: vec![1, 0, 3], blocking: Blocking::All },
        MembershipMessage::Differs { call: call.clone(), peer: 3, theirs: WireHeader(allreduce(7)) },
        MembershipMessage::Ask { communicator: 0, sequence: 7 },
        MembershipMessage::AskSignature(9),
        MembershipMessage::Signature { signature: 9, text: "keys 'ä'".into() },
        MembershipMessage::Answer { communicator: 0, sequence: 7, call: Some(call) },
        MembershipMessage::Goodbye {
            last_calls: vec![WireHeader(barrier(6))],
            has_evicted: false,
            signature: String::new(),
        },
        MembershipMessage::Lost(failure),
    ];
    messages.into_iter().chain(text.map(MembershipMessage::Agreement)).collect()
}

/// Return each message alone, and all messages concatenated.
fn valid() -> Vec<Vec<u8>> {
    let mut valid: Vec<Vec<u8>> = messages().iter().map(MembershipMessage::encode).collect();
    valid.push(valid.concat());
    valid
}

/// Return the machine of `rank` after all ranks have joined.
fn joined(rank: usize, replicas: usize) -> Membership {
    let hosts = (0..WORLD_SIZE).map(|rank| format!("host{rank}")).collect();
    let mut machine = Membership::new(rank, hosts, replicas, TIMING, Duration::ZERO);
    for peer in (0..WORLD_SIZE).filter(|&peer| peer != rank) {
        machine.handle(Duration::ZERO, MembershipEvent::Connected { peer }, &CallHistory::default());
    }
    machine
}

fn kind(output: &MembershipOutput) -> u8 {
    match output {
        MembershipOutput::Send { .. } => 0,
        MembershipOutput::Complete => 1,
        MembershipOutput::Failed(_) => 2,
        MembershipOutput::Lost(_) => 3,
        MembershipOutput::Finished => 4,
        MembershipOutput::Probe { .. } => 5,
    }
}

#[test]
fn every_kind_of_rank_accepts_or_rejects_damaged_messages() {
    let fuzz = Fuzz::new("membership", env!("CARGO_MANIFEST_DIR"), valid()).allowing(|bytes| (64 << 10) + 256 * bytes);
    fuzz.run(|bytes| {
        let mut inbox = MessageInbox::default();
        inbox.push(bytes);
        let mut machines = [(0, 1), (1, 1), (0, 2), (2, 2)].map(|(rank, replicas)| joined(rank, replicas));
        let mut agreement = Agreement::new(0, WORLD_SIZE, false, TIMEOUTS);
        agreement.handle(Duration::ZERO, Received::Begin { address: "mine".into() });
        let (mut kinds, mut now) = (Vec::new(), Duration::ZERO);
        loop {
            let message = match inbox.pop() {
                Ok(Some(message)) => message,
                Ok(None) => return (kinds, None),
                Err(MessageError::TooLong { .. }) => return (kinds, Some(true)),
                Err(MessageError::Malformed) => return (kinds, Some(false)),
            };
            now += Duration::from_millis(100);
            if let MembershipMessage::Agreement(message) = &message {
                agreement.handle(now, Received::Received { peer: 3, message: message.clone() });
            }
            for machine in &mut machines {
                let history = CallHistory::default();
                let received = MembershipEvent::Received { peer: 3, message: message.clone() };
                let outputs = machine.handle(now, received, &history);
                kinds.extend(outputs.iter().map(kind));
                machine.handle(now, MembershipEvent::Tick, &history);
            }
        }
    });
}

#[test]
fn damaged_headers_are_rejected_or_describe_a_call() {
    let valid = [barrier(7), allreduce(1 << 40)].map(|header| header.encode().to_vec());
    Fuzz::new("header", env!("CARGO_MANIFEST_DIR"), valid).run(|bytes| {
        let header = bytes.first_chunk::<HEADER_BYTES>().and_then(Header::decode)?;
        assert_eq!(header.encode(), bytes[..HEADER_BYTES], "a header has one encoding");
        assert!(!header.to_string().is_empty());
        Some((header.call.collective() as u8, header.call.element as u8))
    });
}
