//! Messages of the membership protocol and their encoding: a length (u32, little endian), then postcard.

use super::agreement::AgreementMessage;
use super::history::LastCalls;
use crate::call::{DescribedCall, HEADER_BYTES, Header};
use crate::fabric::{Blocking, JobFailure};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum message size in bytes. Longer texts are truncated before sending. Longer frames are rejected before memory
/// is allocated.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Maximum lengths of a cause and of a traceback. Their sum stays below [`MESSAGE_BYTES_MAX`].
const CAUSE_BYTES_MAX: usize = 8 * 1024;
const TRACEBACK_BYTES_MAX: usize = 48 * 1024;

/// Maximum number of peers in one stall report. A later report names the peers that are still awaited.
const PEERS_MAX: usize = 4096;

const LENGTH_BYTES: usize = 4;

/// Messages between ranks about the state of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MembershipMessage {
    /// The sender is alive.
    Heartbeat,
    /// Hub to all: every rank has joined.
    Complete,
    /// To the hub: the sender observed this failure.
    Report(JobFailure),
    /// To the hub: the sender's link to this rank closed.
    Suspect {
        /// The rank at the other end.
        peer: u32,
        /// The error of the link.
        cause: String,
    },
    /// Hub to all: the job has failed.
    Failed(JobFailure),
    /// To the hub: the sender waits in this collective for these peers.
    Stalled {
        /// The collective.
        call: WireCall,
        /// The awaited peers.
        peers: Vec<u32>,
        /// The condition under which the rank continues.
        blocking: Blocking,
    },
    /// To the hub: the sender's header differs from the header that this peer sent.
    Differs {
        /// The sender's call.
        call: WireCall,
        /// The peer.
        peer: u32,
        /// The peer's header.
        theirs: WireHeader,
    },
    /// Hub to a rank: query the rank's call.
    Ask {
        /// The communicator.
        communicator: u32,
        /// Sequence number of the collective.
        sequence: u64,
    },
    /// Hub to a rank: query the description of a signature.
    AskSignature(u32),
    /// To the hub: the description of a signature.
    Signature {
        /// The queried signature.
        signature: u32,
        /// The description, or empty if it is no longer known.
        text: String,
    },
    /// To the hub: the queried call. If the rank has not reached it or no longer knows it: its last call on that
    /// communicator.
    Answer {
        /// The queried communicator.
        communicator: u32,
        /// The queried sequence number.
        sequence: u64,
        /// The call.
        call: Option<WireCall>,
    },
    /// The sender leaves in good order and lists its last collectives.
    Goodbye {
        /// The last collective of every communicator, latest first.
        last_calls: Vec<WireHeader>,
        /// Whether some communicators were evicted.
        has_evicted: bool,
        /// Description of the latest call's signature.
        signature: String,
    },
    /// Hub to all: this rank has died, but a replica of it is alive. Rank to the hubs: the rank has learned this.
    Lost(JobFailure),
    /// Between any two ranks: a message of the survivor agreement.
    Agreement(AgreementMessage),
}

/// Wire format of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireCall {
    header: WireHeader,
    signature: String,
}

impl From<DescribedCall> for WireCall {
    fn from(DescribedCall { header, signature }: DescribedCall) -> WireCall {
        WireCall { header: WireHeader(header), signature }
    }
}

impl From<WireCall> for DescribedCall {
    fn from(WireCall { header, signature }: WireCall) -> DescribedCall {
        DescribedCall { header: header.0, signature }
    }
}

/// Wire format of a header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireHeader(pub Header);

impl Serialize for WireHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.encode().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WireHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <[u8; HEADER_BYTES]>::deserialize(deserializer)?;
        Header::decode(&bytes).map(WireHeader).ok_or_else(|| serde::de::Error::custom("no header"))
    }
}

impl LastCalls {
    /// Return the goodbye message of a rank.
    pub(super) fn goodbye(self) -> MembershipMessage {
        let last_calls = self.headers.into_iter().map(WireHeader).collect();
        MembershipMessage::Goodbye { last_calls, has_evicted: self.has_evicted, signature: self.signature }
    }
}

/// The reason why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The frame exceeds the maximum message size.
    #[error("a message of {bytes} bytes exceeds the limit")]
    TooLong {
        /// Length of the frame.
        bytes: usize,
    },
    /// The bytes of a frame do not decode.
    #[error("the bytes of a message do not decode")]
    Malformed,
}

impl MembershipMessage {
    /// Return the wire format. Long texts are truncated.
    pub fn encode(&self) -> Vec<u8> {
        let body =
            postcard::to_stdvec(&self.truncated()).expect("messages are plain data, which postcard always encodes");
        assert!(body.len() <= MESSAGE_BYTES_MAX, "texts and lists are truncated so that every message fits");
        [&(body.len() as u32).to_le_bytes(), &body[..]].concat()
    }

    fn truncated(&self) -> MembershipMessage {
        match self.clone() {
            MembershipMessage::Report(failure) => MembershipMessage::Report(truncate_failure(failure)),
            MembershipMessage::Failed(failure) => MembershipMessage::Failed(truncate_failure(failure)),
            MembershipMessage::Lost(failure) => MembershipMessage::Lost(truncate_failure(failure)),
            MembershipMessage::Suspect { peer, cause } => {
                MembershipMessage::Suspect { peer, cause: truncate_end(cause, CAUSE_BYTES_MAX) }
            }
            // A subset of the peers does not prove that no peer can send.
            MembershipMessage::Stalled { call, peers, blocking: Blocking::Any } if peers.len() > PEERS_MAX => {
                MembershipMessage::Stalled { call, peers: peers[..PEERS_MAX].to_vec(), blocking: Blocking::Nothing }
            }
            MembershipMessage::Stalled { call, mut peers, blocking } => {
                peers.truncate(PEERS_MAX);
                MembershipMessage::Stalled { call, peers, blocking }
            }
            short => short,
        }
    }
}

fn truncate_failure(failure: JobFailure) -> JobFailure {
    match failure {
        JobFailure::RankFailed { rank, host, cause, traceback } => JobFailure::RankFailed {
            rank,
            host: truncate_end(host, 256),
            cause: truncate_end(cause, CAUSE_BYTES_MAX),
            traceback: truncate_start(traceback, TRACEBACK_BYTES_MAX),
        },
        JobFailure::Mismatch { description } => {
            JobFailure::Mismatch { description: truncate_end(description, CAUSE_BYTES_MAX) }
        }
    }
}

pub(super) fn truncate_end(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let mut end = bytes_max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

// The end of a traceback is most informative: it holds the location and the error.
fn truncate_start(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let mut start = text.len() - bytes_max;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    format!("…{}", &text[start..])
}

/// Received bytes that are yet to be decoded.
#[derive(Debug, Default)]
pub struct MessageInbox {
    bytes: Vec<u8>,
}

impl MessageInbox {
    /// Add received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Return the next complete message.
    pub fn pop(&mut self) -> Result<Option<MembershipMessage>, MessageError> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let bytes = u32::from_le_bytes(*length) as usize;
        if bytes > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong { bytes });
        }
        let Some(body) = rest.get(..bytes) else { return Ok(None) };
        let message = postcard::from_bytes(body).map_err(|_| MessageError::Malformed)?;
        self.bytes.drain(..LENGTH_BYTES + bytes);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::agreement::Ballot;
    use crate::membership::inquiry::tests::barrier;

    fn failure(bytes: usize) -> JobFailure {
        let text = "ä".repeat(bytes / 2);
        JobFailure::RankFailed { rank: 1, host: "a".into(), cause: text.clone(), traceback: format!("{text}the end") }
    }

    #[test]
    fn messages_decode_for_any_split_of_their_bytes() {
        let described: WireCall = DescribedCall { header: barrier(7), signature: "shape (2, 3)".into() }.into();
        let messages = [
            MembershipMessage::Heartbeat,
            MembershipMessage::Complete,
            MembershipMessage::Report(failure(10)),
            MembershipMessage::Suspect { peer: 4, cause: "reset".into() },
            MembershipMessage::Stalled { call: described.clone(), peers: vec![1, 2, 300], blocking: Blocking::All },
            MembershipMessage::Differs { call: described.clone(), peer: 3, theirs: WireHeader(barrier(8)) },
            MembershipMessage::Answer { communicator: 0, sequence: 7, call: Some(described) },
            MembershipMessage::Signature { signature: 9, text: "keys 'ä'".into() },
            MembershipMessage::Goodbye { last_calls: vec![], has_evicted: false, signature: String::new() },
            MembershipMessage::Lost(failure(10)),
            MembershipMessage::Agreement(AgreementMessage::Propose {
                epoch: 3,
                ballot: Ballot { round: 2, rank: 300 },
                excluded: vec![1, 70_000],
            }),
        ];
        let bytes: Vec<u8> = messages.iter().flat_map(MembershipMessage::encode).collect();
        for step in [1, 2, 3, 7, bytes.len()] {
            let mut inbox = MessageInbox::default();
            let mut got = Vec::new();
            for part in bytes.chunks(step) {
                inbox.push(part);
                while let Some(message) = inbox.pop().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, messages);
        }
    }

    #[test]
    fn a_truncated_traceback_keeps_its_end() {
        let frame = MembershipMessage::Report(failure(1 << 20)).encode();
        assert!(frame.len() <= MESSAGE_BYTES_MAX);
        let mut inbox = MessageInbox::default();
        inbox.push(&frame);
        let Some(MembershipMessage::Report(JobFailure::RankFailed { traceback, .. })) = inbox.pop().unwrap() else {
            panic!()
        };
        assert!(traceback.starts_with('…') && traceback.ends_with("the end"));
    }

    #[test]
    fn invalid_frames_are_rejected() {
        let mut inbox = MessageInbox::default();
        inbox.push(&u32::MAX.to_le_bytes());
        assert_eq!(inbox.pop(), Err(MessageError::TooLong { bytes: u32::MAX as usize }));

        let mut inbox = MessageInbox::default();
        inbox.push(&[1, 0, 0, 0, 200]);
        assert_eq!(inbox.pop(), Err(MessageError::Malformed));
    }
}
