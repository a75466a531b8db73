//! The answerer's side: never blocks, takes no more bytes than the frames have, and gives up at a deadline.

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

/// What follows the tag of a caller that encrypts: the kind of its first record.
const TLS_HANDSHAKE: u8 = 22;

/// So many visitors are heard at a time, where there are descriptors, of which the process has so many for each.
const VISITORS_MAX: usize = 256;
const DESCRIPTORS_PER_VISITOR: usize = 8;

/// A caller that has not proved itself yet.
#[derive(Debug)]
pub(crate) struct PendingConnection {
    pub stream: Stream,
    pub deadline: Instant,
    /// The address, or network of addresses, that it comes from; none on a Unix socket.
    source: Option<IpAddr>,
    stage: AnswerStage,
    frame: [u8; GREETING_BYTES],
    filled: usize,
}

/// Which of some visitors, the oldest first, is shown out for one more: the oldest of the source that has the most, so
/// that a crowd from one place shows out none but its own. Whoever has sent its tag stays longer than all who have not.
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
    /// Whether it encrypts, its next byte shows.
    Kind,
    /// The keys of an encrypted connection.
    Keys,
    Greeting,
    Proof {
        greeting: GreetingFrame,
        challenge: [u8; CHALLENGE_BYTES],
    },
}

/// How far a visitor has come.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It has more to say.
    Waiting(PendingConnection),
    /// It has proved itself and is welcome.
    Welcome(Stream, Greeting),
    /// It has proved itself but is not welcome.
    Refused(Greeting, Refusal),
    /// It speaks our language but knows another token, and has been told nothing.
    WrongToken(Stream),
    /// It is none of ours, and has been told nothing that depends on the job.
    Stranger,
}

impl PendingConnection {
    /// So many are heard at a time at a door; for one more the oldest of the largest crowd is shown out. They leave
    /// most of the process's descriptors to it, for it does not get back in time what it lacks for a link.
    pub fn most() -> usize {
        let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
        (limit / DESCRIPTORS_PER_VISITOR).clamp(1, VISITORS_MAX)
    }

    /// A visitor on a fresh connection, which becomes non-blocking.
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

    /// Reads what is there; `judge` says whether a caller that has proved itself is welcome.
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
                    Ok(0) => return Answer::Stranger,
                    Ok(count) => self.filled += count,
                    Err(error) if is_not_now(&error) => return Answer::Waiting(self),
                    Err(_) => return Answer::Stranger,
                }
                if !self.has_sent_tag() && !may_send_tag(&self.frame[..self.filled]) {
                    return Answer::Stranger;
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
                    return Answer::Stranger;
                }
                AnswerStage::Greeting => {
                    let mut challenge = [0; CHALLENGE_BYTES];
                    if fill_random(&mut challenge).is_err() || !self.say(&challenge) {
                        return Answer::Stranger;
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

    /// The visitor one stage on: by its next byte it shows whether it encrypts, and then it agrees on keys.
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
            Err(_) => return Err(Box::new(Answer::Stranger)),
        };
        let encrypts = matches!(self.stage, AnswerStage::Kind) && self.frame[0] == TLS_HANDSHAKE;
        match self.stream {
            Stream::Tcp(socket) if encrypts => {
                let session = TlsSession::answer(socket, token).map_err(|_| Box::new(Answer::Stranger))?;
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
            return Answer::Stranger;
        };
        if !is_seal(&self.frame[..PROOF_BYTES], token, "caller", &[frame, challenge, &binding]) {
            return Answer::Stranger;
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
            None => Answer::Stranger,
        }
    }

    /// Sends a frame; a fresh connection always has room for one.
    fn say(&mut self, frame: &[u8]) -> bool {
        matches!(self.stream.write(frame), Ok(count) if count == frame.len())
    }
}
