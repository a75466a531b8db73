//! The answerer's side: never blocks, takes no more bytes than the frames have, and gives up at a deadline.

use super::{CHALLENGE_BYTES, GREETING_BYTES, Greeting, GreetingFrame, PROOF_BYTES, Refusal, is_seal, seal};
use crate::config::{Token, fill_random};
use crate::stream::{Stream, is_not_now};
use std::io::{Read, Write};
use std::time::Instant;

/// A caller that has not proved itself yet.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub stream: Stream,
    pub deadline: Instant,
    stage: Stage,
    frame: [u8; GREETING_BYTES],
    filled: usize,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Greeting,
    Proof { greeting: GreetingFrame, challenge: [u8; CHALLENGE_BYTES] },
}

/// How far a visitor has come.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It has more to say.
    Waiting(Visitor),
    /// It has proved itself and is welcome.
    Welcome(Stream, Greeting),
    /// It has proved itself but is not welcome.
    Refused(Greeting, Refusal),
    /// It speaks our language but knows another token.
    WrongToken,
    /// It is none of ours.
    Stranger,
}

impl Visitor {
    /// A visitor on a fresh connection, which becomes non-blocking.
    pub fn new(stream: Stream, deadline: Instant) -> std::io::Result<Visitor> {
        stream.set_nonblocking(true)?;
        Ok(Visitor { stream, deadline, stage: Stage::Greeting, frame: [0; GREETING_BYTES], filled: 0 })
    }

    /// Reads what is there; `judge` says whether a caller that has proved itself is welcome.
    pub fn advance(mut self, token: &Token, judge: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>) -> Answer {
        loop {
            let wanted = match self.stage {
                Stage::Greeting => GREETING_BYTES,
                Stage::Proof { .. } => PROOF_BYTES,
            };
            while self.filled < wanted {
                match self.stream.read(&mut self.frame[self.filled..wanted]) {
                    Ok(0) => return Answer::Stranger,
                    Ok(count) => self.filled += count,
                    Err(error) if is_not_now(&error) => return Answer::Waiting(self),
                    Err(_) => return Answer::Stranger,
                }
            }
            self.filled = 0;
            match self.stage {
                Stage::Greeting if Greeting::decode(&self.frame).is_none() => {
                    return Answer::Stranger;
                }
                Stage::Greeting => {
                    let mut challenge = [0; CHALLENGE_BYTES];
                    if fill_random(&mut challenge).is_err() || !self.say(&challenge) {
                        return Answer::Stranger;
                    }
                    self.stage = Stage::Proof { greeting: self.frame, challenge };
                }
                Stage::Proof { greeting, challenge } => return self.judge(token, &greeting, &challenge, judge),
            }
        }
    }

    fn judge(
        mut self,
        token: &Token,
        frame: &GreetingFrame,
        challenge: &[u8; CHALLENGE_BYTES],
        judge: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>,
    ) -> Answer {
        let Some(greeting) = Greeting::decode(frame) else { return Answer::Stranger };
        if !is_seal(&self.frame[..PROOF_BYTES], token, "caller", &[frame, challenge]) {
            // No seal on this verdict: it would tell a stranger nothing, but it costs nothing either.
            self.say(&[&Refusal::encode(Some(Refusal::Token))[..], &[0; PROOF_BYTES]].concat());
            return Answer::WrongToken;
        }
        let refusal = judge(&greeting).err();
        let verdict = Refusal::encode(refusal);
        let seal = seal(token, "answerer", &[&verdict, frame, challenge]);
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
