//! The messages of the membership protocol and their bytes: a length (u32, little endian), then postcard.

use super::agreement::AgreementMessage;
use super::history::Lasts;
use crate::call::{DescribedCall, HEADER_BYTES, Header};
use crate::fabric::{Blocking, JobFailure};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest message; longer texts are cut before they are sent, longer frames refused before memory is taken.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The longest cause and the longest traceback that travel. Together they stay below [`MESSAGE_BYTES_MAX`].
const CAUSE_BYTES_MAX: usize = 8 * 1024;
const TRACEBACK_BYTES_MAX: usize = 48 * 1024;

/// How many peers one query names; the rest are named by the next one.
const PEERS_MAX: usize = 4096;

const LENGTH_BYTES: usize = 4;

/// What ranks tell each other about the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MembershipMessage {
    /// I am alive.
    Heartbeat,
    /// Hub to all: every rank has come.
    Complete,
    /// To the hub: I saw this failure.
    Report(JobFailure),
    /// To the hub: my link to this rank closed.
    Suspect {
        /// The rank at the other end.
        peer: u32,
        /// What the link said.
        cause: String,
    },
    /// Hub to all: the job has failed.
    Failed(JobFailure),
    /// To the hub: I wait in this collective for these peers.
    Stalled {
        /// The collective.
        call: WireCall,
        /// Who is waited for.
        peers: Vec<u32>,
        /// What the rank needs to continue.
        blocking: Blocking,
    },
    /// To the hub: what I called is not what this peer sent ahead of its data.
    Differs {
        /// What I called.
        call: WireCall,
        /// The peer.
        peer: u32,
        /// What it sent.
        theirs: WireHeader,
    },
    /// Hub to a rank: what did you call then?
    Ask {
        /// The communicator.
        communicator: u32,
        /// The number of its collectives.
        sequence: u64,
    },
    /// Hub to a rank: what does this form of yours stand for?
    AskForm(u32),
    /// To the hub: for this.
    Form {
        /// The form asked about.
        form: u32,
        /// What it stands for; nothing if I have forgotten.
        words: String,
    },
    /// To the hub: this; or, if I have not come so far or have forgotten, this was my last of that communicator.
    Answer {
        /// The communicator asked about.
        communicator: u32,
        /// The number asked for.
        sequence: u64,
        /// What was called.
        call: Option<WireCall>,
    },
    /// I leave in good order; these were my last collectives.
    Goodbye {
        /// The last of every communicator, the latest first.
        lasts: Vec<WireHeader>,
        /// There were more than I remember.
        has_forgotten: bool,
        /// What the form of the latest stands for.
        form: String,
    },
    /// Hub to all: this rank has died, but a replica of it lives.
    Lost(JobFailure),
    /// Between any two: of the agreement of survivors.
    Agreement(AgreementMessage),
}

/// What was called, as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireCall {
    header: WireHeader,
    form: String,
}

impl From<DescribedCall> for WireCall {
    fn from(DescribedCall { header, form }: DescribedCall) -> WireCall {
        WireCall { header: WireHeader(header), form }
    }
}

impl From<WireCall> for DescribedCall {
    fn from(WireCall { header, form }: WireCall) -> DescribedCall {
        DescribedCall { header: header.0, form }
    }
}

/// A header as it travels.
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

impl Lasts {
    /// The words in which a rank leaves.
    pub(super) fn goodbye(self) -> MembershipMessage {
        let lasts = self.headers.into_iter().map(WireHeader).collect();
        MembershipMessage::Goodbye { lasts, has_forgotten: self.has_forgotten, form: self.form }
    }
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A frame says that it is longer than any message.
    #[error("a message of {bytes} bytes is longer than any of ours")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The bytes of a frame do not decode.
    #[error("the bytes of a message do not decode")]
    Garbled,
}

impl MembershipMessage {
    /// The bytes that travel; long texts are cut.
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(&self.cut()).expect("messages are plain data, which postcard always encodes");
        assert!(body.len() <= MESSAGE_BYTES_MAX, "texts and lists are cut so that every message fits");
        [&(body.len() as u32).to_le_bytes(), &body[..]].concat()
    }

    fn cut(&self) -> MembershipMessage {
        match self.clone() {
            MembershipMessage::Report(failure) => MembershipMessage::Report(cut_failure(failure)),
            MembershipMessage::Failed(failure) => MembershipMessage::Failed(cut_failure(failure)),
            MembershipMessage::Lost(failure) => MembershipMessage::Lost(cut_failure(failure)),
            MembershipMessage::Suspect { peer, cause } => {
                MembershipMessage::Suspect { peer, cause: cut_end(cause, CAUSE_BYTES_MAX) }
            }
            // A part of the peers does not show that none can bring anything.
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

fn cut_failure(failure: JobFailure) -> JobFailure {
    match failure {
        JobFailure::RankFailed { rank, host, cause, traceback } => JobFailure::RankFailed {
            rank,
            host: cut_end(host, 256),
            cause: cut_end(cause, CAUSE_BYTES_MAX),
            traceback: cut_start(traceback, TRACEBACK_BYTES_MAX),
        },
        JobFailure::Mismatch { description } => {
            JobFailure::Mismatch { description: cut_end(description, CAUSE_BYTES_MAX) }
        }
    }
}

pub(super) fn cut_end(mut text: String, bytes_max: usize) -> String {
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

// The end of a traceback says most: where it happened, and what.
fn cut_start(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let mut start = text.len() - bytes_max;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    format!("…{}", &text[start..])
}

/// Bytes that came, on their way to being messages.
#[derive(Debug, Default)]
pub struct MessageInbox {
    bytes: Vec<u8>,
}

impl MessageInbox {
    /// Adds bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn pop(&mut self) -> Result<Option<MembershipMessage>, MessageError> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let bytes = u32::from_le_bytes(*length) as usize;
        if bytes > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong { bytes });
        }
        let Some(body) = rest.get(..bytes) else { return Ok(None) };
        let message = postcard::from_bytes(body).map_err(|_| MessageError::Garbled)?;
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
    fn messages_come_out_whole_however_their_bytes_arrive() {
        let told: WireCall = DescribedCall { header: barrier(7), form: "shape (2, 3)".into() }.into();
        let messages = [
            MembershipMessage::Heartbeat,
            MembershipMessage::Complete,
            MembershipMessage::Report(failure(10)),
            MembershipMessage::Suspect { peer: 4, cause: "reset".into() },
            MembershipMessage::Stalled { call: told.clone(), peers: vec![1, 2, 300], blocking: Blocking::All },
            MembershipMessage::Differs { call: told.clone(), peer: 3, theirs: WireHeader(barrier(8)) },
            MembershipMessage::Answer { communicator: 0, sequence: 7, call: Some(told) },
            MembershipMessage::Form { form: 9, words: "keys 'ä'".into() },
            MembershipMessage::Goodbye { lasts: vec![], has_forgotten: false, form: String::new() },
            MembershipMessage::Lost(failure(10)),
            MembershipMessage::Agreement(AgreementMessage::Propose {
                epoch: 3,
                ballot: Ballot { round: 2, rank: 300 },
                gone: vec![1, 70_000],
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
    fn a_long_traceback_is_cut_and_keeps_its_end() {
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
    fn frames_that_are_no_messages_are_refused() {
        let mut inbox = MessageInbox::default();
        inbox.push(&u32::MAX.to_le_bytes());
        assert_eq!(inbox.pop(), Err(MessageError::TooLong { bytes: u32::MAX as usize }));

        let mut inbox = MessageInbox::default();
        inbox.push(&[1, 0, 0, 0, 200]);
        assert_eq!(inbox.pop(), Err(MessageError::Garbled));
    }
}
