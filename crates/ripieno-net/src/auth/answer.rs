//! Server side of the authentication. It never blocks, never reads beyond a frame, and closes at a deadline.

use super::preauth_tag::{is_tag, is_tag_prefix};
use super::{
    CHALLENGE_BYTES, GREETING_BYTES, Greeting, GreetingFrame, PREAUTH_TAG_BYTES, PROOF_BYTES, Refusal, is_seal, seal,
};
use crate::config::{Credentials, Token, fill_random};
use crate::stream::{Stream, is_would_block};
use crate::tls::TlsSession;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::time::Instant;

/// First byte after the tag of a caller that encrypts: the type of its first TLS record.
const TLS_HANDSHAKE: u8 = 22;

/// Limit of pending connections per acceptor, and the number of process descriptors required for each.
const PENDING_MAX: usize = 256;
const DESCRIPTORS_PER_PENDING: usize = 8;

/// A connection from a caller that has not authenticated yet.
#[derive(Debug)]
pub(crate) struct PendingConnection {
    pub stream: Stream,
    pub deadline: Instant,
    /// The IP address or network that the connection comes from; `None` on a Unix socket.
    source: Option<IpAddr>,
    stage: AnswerStage,
    frame: [u8; GREETING_BYTES],
    filled: usize,
}

/// Return the index of the connection to close when the limit is reached. `pending_connections` are ordered oldest
/// first.
///
/// The choice is the oldest connection of the source with the most connections, so a flood from one source displaces
/// only its own connections. Connections without a tag are closed before connections that have sent one.
pub(crate) fn connection_to_evict<'a>(
    mut pending_connections: impl Iterator<Item = &'a PendingConnection> + Clone,
) -> Option<usize> {
    let have_sent_tag = pending_connections.clone().all(PendingConnection::has_sent_tag);
    let is_candidate = |pending: &&PendingConnection| pending.has_sent_tag() == have_sent_tag;
    let mut count_by_source: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    pending_connections
        .clone()
        .filter(is_candidate)
        .for_each(|pending| *count_by_source.entry(pending.source).or_default() += 1);
    let max_count = count_by_source.values().copied().max()?;
    pending_connections.position(|pending| is_candidate(&pending) && count_by_source[&pending.source] == max_count)
}

#[derive(Clone, Copy, Debug)]
enum AnswerStage {
    PreauthTag,
    /// Waiting for the first byte after the tag, which shows whether the caller encrypts.
    FirstByte,
    /// The TLS handshake of an encrypted connection.
    Handshake,
    Greeting,
    Proof {
        greeting: GreetingFrame,
        challenge: [u8; CHALLENGE_BYTES],
    },
}

/// Progress of a pending connection.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The caller must send more.
    Waiting(PendingConnection),
    /// The caller has authenticated and is accepted.
    Accepted(Stream, Greeting),
    /// The caller has authenticated but is refused.
    Refused(Greeting, Refusal),
    /// The caller speaks the protocol but uses another token. It has received nothing.
    WrongToken(Stream),
    /// The caller is unauthenticated. It has received nothing that depends on the job.
    Unauthenticated,
}

impl PendingConnection {
    /// Return the limit of pending connections per acceptor. Beyond it, the oldest connection of the source with the
    /// most connections is closed. The limit leaves most of the process's descriptors free, because a link that fails
    /// to get a descriptor does not recover in time.
    pub fn max_count() -> usize {
        let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
        (limit / DESCRIPTORS_PER_PENDING).clamp(1, PENDING_MAX)
    }

    /// Create a pending connection on a new stream, which becomes non-blocking.
    pub fn new(stream: Stream, deadline: Instant) -> std::io::Result<PendingConnection> {
        stream.set_nonblocking(true)?;
        let source = stream.source();
        Ok(PendingConnection {
            stream,
            deadline,
            source,
            stage: AnswerStage::PreauthTag,
            frame: [0; GREETING_BYTES],
            filled: 0,
        })
    }

    fn has_sent_tag(&self) -> bool {
        !matches!(self.stage, AnswerStage::PreauthTag)
    }

    /// Read the available bytes. `authorize` decides whether to accept a caller that has authenticated.
    pub fn advance(
        mut self,
        credentials: &Credentials,
        authorize: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>,
    ) -> Answer {
        loop {
            let target_bytes = match self.stage {
                AnswerStage::PreauthTag => PREAUTH_TAG_BYTES,
                AnswerStage::Greeting => GREETING_BYTES,
                AnswerStage::Proof { .. } => PROOF_BYTES,
                AnswerStage::FirstByte | AnswerStage::Handshake => match self.open(&credentials.token) {
                    Ok(opened) => {
                        self = opened;
                        continue;
                    }
                    Err(answer) => return *answer,
                },
            };
            while self.filled < target_bytes {
                match self.stream.read(&mut self.frame[self.filled..target_bytes]) {
                    Ok(0) => return Answer::Unauthenticated,
                    Ok(count) => self.filled += count,
                    Err(error) if is_would_block(&error) => return Answer::Waiting(self),
                    Err(_) => return Answer::Unauthenticated,
                }
                if !self.has_sent_tag() && !is_tag_prefix(&self.frame[..self.filled]) {
                    return Answer::Unauthenticated;
                }
            }
            self.filled = 0;
            match self.stage {
                AnswerStage::PreauthTag => {
                    let preauth_tag = self.frame.first_chunk().expect("a preauth_tag is shorter than a greeting");
                    if !is_tag(preauth_tag, &credentials.token) {
                        return Answer::WrongToken(self.stream);
                    }
                    self.stage = AnswerStage::FirstByte;
                }
                AnswerStage::Greeting if Greeting::decode(&self.frame).is_none() => {
                    return Answer::Unauthenticated;
                }
                AnswerStage::Greeting => {
                    let mut challenge = [0; CHALLENGE_BYTES];
                    if fill_random(&mut challenge).is_err() || !self.send_reply(&challenge) {
                        return Answer::Unauthenticated;
                    }
                    self.stage = AnswerStage::Proof { greeting: self.frame, challenge };
                }
                AnswerStage::Proof { greeting, challenge } => {
                    return self.authorize(credentials, &greeting, &challenge, authorize);
                }
                AnswerStage::FirstByte | AnswerStage::Handshake => unreachable!("these stages read no frame"),
            }
        }
    }

    /// Move to the next stage: the next byte shows whether the caller encrypts, and then the TLS handshake runs.
    fn open(mut self, token: &Token) -> Result<PendingConnection, Box<Answer>> {
        let outcome = match (&mut self.stream, self.stage) {
            (Stream::Tls(session), AnswerStage::Handshake) => session.handshake(),
            (Stream::Tcp(socket), _) => match socket.peek(&mut self.frame[..1]) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => Ok(true),
                Err(error) => Err(error),
            },
            _ => Ok(true),
        };
        let is_done = match outcome {
            Ok(is_done) => is_done,
            Err(error) if is_would_block(&error) => return Err(Box::new(Answer::Waiting(self))),
            Err(_) => return Err(Box::new(Answer::Unauthenticated)),
        };
        let encrypts = matches!(self.stage, AnswerStage::FirstByte) && self.frame[0] == TLS_HANDSHAKE;
        match self.stream {
            Stream::Tcp(socket) if encrypts => {
                let session = TlsSession::answer(socket, token).map_err(|_| Box::new(Answer::Unauthenticated))?;
                Ok(PendingConnection { stream: Stream::Tls(Box::new(session)), stage: AnswerStage::Handshake, ..self })
            }
            stream => Ok(PendingConnection {
                stream,
                stage: if is_done { AnswerStage::Greeting } else { AnswerStage::Handshake },
                ..self
            }),
        }
    }

    fn authorize(
        mut self,
        credentials: &Credentials,
        frame: &GreetingFrame,
        challenge: &[u8; CHALLENGE_BYTES],
        authorize: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>,
    ) -> Answer {
        let token = &credentials.token;
        let (Some(greeting), Ok(binding)) = (Greeting::decode(frame), self.stream.binding()) else {
            return Answer::Unauthenticated;
        };
        if !is_seal(&self.frame[..PROOF_BYTES], token, "caller", &[frame, challenge, &binding]) {
            return Answer::Unauthenticated;
        }
        let refusal = match self.stream.is_allowed(credentials.tls) {
            true => authorize(&greeting).err(),
            false => Some(Refusal::Tls(!matches!(self.stream, Stream::Tls(_)))),
        };
        let verdict = Refusal::encode(refusal);
        let seal = seal(token, "answerer", &[&verdict, frame, challenge, &binding]);
        let sent = self.send_reply(&[&verdict[..], &seal].concat());
        match refusal {
            Some(refusal) => Answer::Refused(greeting, refusal),
            None if sent => Answer::Accepted(self.stream, greeting),
            None => Answer::Unauthenticated,
        }
    }

    /// Send a frame. The send buffer of a new connection always has space for one.
    fn send_reply(&mut self, frame: &[u8]) -> bool {
        matches!(self.stream.write(frame), Ok(count) if count == frame.len())
    }
}
