//! Server side of the authentication. It never blocks, never reads beyond a frame, and closes at a deadline.

use super::preauth_tag::{is_tag, may_send_tag};
use super::{
    CHALLENGE_BYTES, GREETING_BYTES, Greeting, GreetingFrame, PREAUTH_TAG_BYTES, PROOF_BYTES, Refusal, is_seal, seal,
};
use crate::config::{Credentials, Token, fill_random};
use crate::stream::{Stream, is_not_now};
use crate::tls::TlsSession;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::time::Instant;

/// First byte after the tag of a caller that encrypts: the type of its first TLS record.
const TLS_HANDSHAKE: u8 = 22;

/// Limit of pending connections per acceptor, and the number of process descriptors required for each.
const VISITORS_MAX: usize = 256;
const DESCRIPTORS_PER_VISITOR: usize = 8;

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

/// Return the index of the connection to close when a place is needed. `visitors` are ordered oldest first.
///
/// The choice is the oldest connection of the source with the most connections, so a flood from one source displaces
/// only its own connections. Connections without a tag go before connections that have sent one.
pub(crate) fn least_welcome<'a>(mut visitors: impl Iterator<Item = &'a PendingConnection> + Clone) -> Option<usize> {
    let have_sent_tag = visitors.clone().all(PendingConnection::has_sent_tag);
    let may_go = |visitor: &&PendingConnection| visitor.has_sent_tag() == have_sent_tag;
    let mut crowds: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    visitors.clone().filter(may_go).for_each(|visitor| *crowds.entry(visitor.source).or_default() += 1);
    let most = crowds.values().copied().max()?;
    visitors.position(|visitor| may_go(&visitor) && crowds[&visitor.source] == most)
}

#[derive(Clone, Copy, Debug)]
enum AnswerStage {
    PreauthTag,
    /// Waiting for the first byte after the tag, which shows whether the caller encrypts.
    Kind,
    /// The TLS handshake of an encrypted connection.
    Keys,
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
    Welcome(Stream, Greeting),
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
    pub fn most() -> usize {
        let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
        (limit / DESCRIPTORS_PER_VISITOR).clamp(1, VISITORS_MAX)
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

    /// Read the available bytes. `judge` decides whether to accept a caller that has authenticated.
    pub fn advance(
        mut self,
        credentials: &Credentials,
        judge: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>,
    ) -> Answer {
        loop {
            let wanted = match self.stage {
                AnswerStage::PreauthTag => PREAUTH_TAG_BYTES,
                AnswerStage::Greeting => GREETING_BYTES,
                AnswerStage::Proof { .. } => PROOF_BYTES,
                AnswerStage::Kind | AnswerStage::Keys => match self.open(&credentials.token) {
                    Ok(opened) => {
                        self = opened;
                        continue;
                    }
                    Err(answer) => return *answer,
                },
            };
            while self.filled < wanted {
                match self.stream.read(&mut self.frame[self.filled..wanted]) {
                    Ok(0) => return Answer::Unauthenticated,
                    Ok(count) => self.filled += count,
                    Err(error) if is_not_now(&error) => return Answer::Waiting(self),
                    Err(_) => return Answer::Unauthenticated,
                }
                if !self.has_sent_tag() && !may_send_tag(&self.frame[..self.filled]) {
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
                    self.stage = AnswerStage::Kind;
                }
                AnswerStage::Greeting if Greeting::decode(&self.frame).is_none() => {
                    return Answer::Unauthenticated;
                }
                AnswerStage::Greeting => {
                    let mut challenge = [0; CHALLENGE_BYTES];
                    if fill_random(&mut challenge).is_err() || !self.say(&challenge) {
                        return Answer::Unauthenticated;
                    }
                    self.stage = AnswerStage::Proof { greeting: self.frame, challenge };
                }
                AnswerStage::Proof { greeting, challenge } => {
                    return self.judge(credentials, &greeting, &challenge, judge);
                }
                AnswerStage::Kind | AnswerStage::Keys => unreachable!("they take no frame"),
            }
        }
    }

    /// Move to the next stage: the next byte shows whether the caller encrypts, and then the TLS handshake runs.
    fn open(mut self, token: &Token) -> Result<PendingConnection, Box<Answer>> {
        let outcome = match (&mut self.stream, self.stage) {
            (Stream::Tls(session), AnswerStage::Keys) => session.shake_hands(),
            (Stream::Tcp(socket), _) => match socket.peek(&mut self.frame[..1]) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => Ok(true),
                Err(error) => Err(error),
            },
            _ => Ok(true),
        };
        let is_done = match outcome {
            Ok(is_done) => is_done,
            Err(error) if is_not_now(&error) => return Err(Box::new(Answer::Waiting(self))),
            Err(_) => return Err(Box::new(Answer::Unauthenticated)),
        };
        let encrypts = matches!(self.stage, AnswerStage::Kind) && self.frame[0] == TLS_HANDSHAKE;
        match self.stream {
            Stream::Tcp(socket) if encrypts => {
                let session = TlsSession::answer(socket, token).map_err(|_| Box::new(Answer::Unauthenticated))?;
                Ok(PendingConnection { stream: Stream::Tls(Box::new(session)), stage: AnswerStage::Keys, ..self })
            }
            stream => Ok(PendingConnection {
                stream,
                stage: if is_done { AnswerStage::Greeting } else { AnswerStage::Keys },
                ..self
            }),
        }
    }

    fn judge(
        mut self,
        credentials: &Credentials,
        frame: &GreetingFrame,
        challenge: &[u8; CHALLENGE_BYTES],
        judge: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>,
    ) -> Answer {
        let token = &credentials.token;
        let (Some(greeting), Ok(binding)) = (Greeting::decode(frame), self.stream.binding()) else {
            return Answer::Unauthenticated;
        };
        if !is_seal(&self.frame[..PROOF_BYTES], token, "caller", &[frame, challenge, &binding]) {
            return Answer::Unauthenticated;
        }
        let refusal = match self.stream.is_allowed(credentials.tls) {
            true => judge(&greeting).err(),
            false => Some(Refusal::Tls(!matches!(self.stream, Stream::Tls(_)))),
        };
        let verdict = Refusal::encode(refusal);
        let seal = seal(token, "answerer", &[&verdict, frame, challenge, &binding]);
        let said = self.say(&[&verdict[..], &seal].concat());
        match refusal {
            Some(refusal) => Answer::Refused(greeting, refusal),
            None if said => Answer::Welcome(self.stream, greeting),
            None => Answer::Unauthenticated,
        }
    }

    /// Send a frame. The send buffer of a new connection always has space for one.
    fn say(&mut self, frame: &[u8]) -> bool {
        matches!(self.stream.write(frame), Ok(count) if count == frame.len())
    }
}
