//! The caller's side: blocks, but never past its deadline.

use super::{CHALLENGE_BYTES, Greeting, Refusal, VERDICT_BYTES, is_seal, seal};
use crate::config::{Token, fill_random};
use crate::stream::Stream;
use std::io::{self, Write};
use std::time::Instant;

/// Why a call did not end in a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The answerer refuses; authenticated, except for [`Refusal::Token`].
    Refused(Refusal),
    /// Nothing came before the deadline: late, or none of ours.
    Silent,
    /// It speaks our language, but does not know the token.
    Unproven,
    /// It is none of ours.
    Stranger(String),
}

impl Denied {
    /// Whether somebody who knows the token says so. All else may come from anybody, and decides nothing.
    pub fn is_proven(&self) -> bool {
        matches!(self, Denied::Refused(refusal) if *refusal != Refusal::Token)
    }
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denied::Refused(refusal) => write!(f, "refused: {refusal}"),
            Denied::Silent => write!(f, "connected, but nothing answered"),
            Denied::Unproven => write!(f, "connected, but it is no rank of this job: its proof is wrong"),
            Denied::Stranger(cause) => write!(f, "connected, but it is no rank of this job: {cause}"),
        }
    }
}

/// Proves itself to the other end of `stream` and lets it prove itself, before `deadline`.
pub(crate) fn call(stream: &mut Stream, token: &Token, greeting: &Greeting, deadline: Instant) -> Result<(), Denied> {
    let mut own_challenge = [0; CHALLENGE_BYTES];
    fill_random(&mut own_challenge).map_err(|error| Denied::Stranger(error.to_string()))?;
    let greeting = greeting.encode(&own_challenge);
    stream.set_timeout(deadline.saturating_duration_since(Instant::now())).map_err(denied)?;
    stream.write_all(&greeting).map_err(denied)?;

    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact_until(&mut challenge, deadline).map_err(denied)?;
    stream.write_all(&seal(token, "caller", &[&greeting, &challenge])).map_err(denied)?;

    let mut frame = [0; VERDICT_BYTES];
    stream.read_exact_until(&mut frame, deadline).map_err(denied)?;
    let (verdict, proof) = frame.split_first_chunk::<8>().expect("a verdict is longer than 8 bytes");
    match Refusal::decode(verdict) {
        Some(Some(Refusal::Token)) => Err(Denied::Refused(Refusal::Token)),
        Some(refusal) if is_seal(proof, token, "answerer", &[verdict, &greeting, &challenge]) => {
            refusal.map_or(Ok(()), |refusal| Err(Denied::Refused(refusal)))
        }
        _ => Err(Denied::Unproven),
    }
}

fn denied(error: io::Error) -> Denied {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Denied::Silent,
        _ => Denied::Stranger(error.to_string()),
    }
}
