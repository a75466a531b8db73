//! The messages of the membership protocol and their bytes: a length (u32, little endian), then postcard.

use super::agreement::Word;
use super::history::Lasts;
use crate::call::{HEADER_BYTES, Header, Told};
use crate::fabric::{Blocking, Failure};
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
pub enum Message {
    /// I am alive.
    Heartbeat,
    /// Hub to all: every rank has come.
    Complete,
    /// To the hub: I saw this failure.
    Report(Failure),
    /// To the hub: my link to this rank closed.
    Suspect {
        /// The rank at the other end.
        peer: u32,
        /// What the link said.
        cause: String,
    },
    /// Hub to all: the job has failed.
    Failed(Failure),
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
    Lost(Failure),
    /// Between any two: of the agreement of survivors.
    Agreement(Word),
}

/// What was called, as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireCall {
    header: WireHeader,
    form: String,
}

impl From<Told> for WireCall {
    fn from(Told { header, form }: Told) -> WireCall {
        WireCall { header: WireHeader(header), form }
    }
}

impl From<WireCall> for Told {
    fn from(WireCall { header, form }: WireCall) -> Told {
        Told { header: header.0, form }
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
    pub(super) fn goodbye(self) -> Message {
        let lasts = self.headers.into_iter().map(WireHeader).collect();
        Message::Goodbye { lasts, has_forgotten: self.has_forgotten, form: self.form }
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

impl Message {
    /// The bytes that travel; long texts are cut.
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(&self.cut()).expect("messages are plain data, which postcard always encodes");
        assert!(body.len() <= MESSAGE_BYTES_MAX, "texts and lists are cut so that every message fits");
        [&(body.len() as u32).to_le_bytes(), &body[..]].concat()
    }

    fn cut(&self) -> Message {
        match self.clone() {
            Message::Report(failure) => Message::Report(cut_failure(failure)),
            Message::Failed(failure) => Message::Failed(cut_failure(failure)),
            Message::Lost(failure) => Message::Lost(cut_failure(failure)),
            Message::Suspect { peer, cause } => Message::Suspect { peer, cause: cut_end(cause, CAUSE_BYTES_MAX) },
            // A part of the peers does not show that none can bring anything.
            Message::Stalled { call, peers, blocking: Blocking::Any } if peers.len() > PEERS_MAX => {
                Message::Stalled { call, peers: peers[..PEERS_MAX].to_vec(), blocking: Blocking::Nothing }
            }
            Message::Stalled { call, mut peers, blocking } => {
                peers.truncate(PEERS_MAX);
                Message::Stalled { call, peers, blocking }
            }
            short => short,
        }
    }
}

fn cut_failure(failure: Failure) -> Failure {
    match failure {
        Failure::RankFailed { rank, host, cause, traceback } => Failure::RankFailed {
            rank,
            host: cut_end(host, 256),
            cause: cut_end(cause, CAUSE_BYTES_MAX),
            traceback: cut_start(traceback, TRACEBACK_BYTES_MAX),
        },
        Failure::Mismatch { description } => Failure::Mismatch { description: cut_end(description, CAUSE_BYTES_MAX) },
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
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Adds bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn pop(&mut self) -> Result<Option<Message>, MessageError> {
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

    fn failure(bytes: usize) -> Failure {
        let text = "ä".repeat(bytes / 2);
        Failure::RankFailed { rank: 1, host: "a".into(), cause: text.clone(), traceback: format!("{text}the end") }
    }

    #[test]
    fn messages_come_out_whole_however_their_bytes_arrive() {
        let told: WireCall = Told { header: barrier(7), form: "shape (2, 3)".into() }.into();
        let messages = [
            Message::Heartbeat,
            Message::Complete,
            Message::Report(failure(10)),
            Message::Suspect { peer: 4, cause: "reset".into() },
            Message::Stalled { call: told.clone(), peers: vec![1, 2, 300], blocking: Blocking::All },
            Message::Differs { call: told.clone(), peer: 3, theirs: WireHeader(barrier(8)) },
            Message::Answer { communicator: 0, sequence: 7, call: Some(told) },
            Message::Form { form: 9, words: "keys 'ä'".into() },
            Message::Goodbye { lasts: vec![], has_forgotten: false, form: String::new() },
            Message::Lost(failure(10)),
            Message::Agreement(Word::Propose {
                epoch: 3,
                ballot: Ballot { round: 2, rank: 300 },
                gone: vec![1, 70_000],
            }),
        ];
        let bytes: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
        for step in [1, 2, 3, 7, bytes.len()] {
            let mut inbox = Inbox::default();
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
        let frame = Message::Report(failure(1 << 20)).encode();
        assert!(frame.len() <= MESSAGE_BYTES_MAX);
        let mut inbox = Inbox::default();
        inbox.push(&frame);
        let Some(Message::Report(Failure::RankFailed { traceback, .. })) = inbox.pop().unwrap() else { panic!() };
        assert!(traceback.starts_with('…') && traceback.ends_with("the end"));
    }

    #[test]
    fn frames_that_are_no_messages_are_refused() {
        let mut inbox = Inbox::default();
        inbox.push(&u32::MAX.to_le_bytes());
        assert_eq!(inbox.pop(), Err(MessageError::TooLong { bytes: u32::MAX as usize }));

        let mut inbox = Inbox::default();
        inbox.push(&[1, 0, 0, 0, 200]);
        assert_eq!(inbox.pop(), Err(MessageError::Garbled));
    }
}
