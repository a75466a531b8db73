//! Caller's side of the authentication. It blocks at most until its deadline.

use super::preauth_tag::preauth_tag;
use super::{CHALLENGE_BYTES, Greeting, OTHER_TOKEN, Refusal, VERDICT_BYTES, is_seal, seal};
use crate::config::{Credentials, fill_random};
use crate::stream::{Stream, stays_on_host};
use crate::tls::TlsSession;
use std::io::{self, Write};
use std::time::Instant;

/// The reason why a call did not end in a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The answerer refuses, and has proved that it knows the token.
    Refused(Refusal),
    /// The answerer reports, without proof, that it uses another token.
    OtherToken,
    /// No reply before the deadline: the answerer is late or does not belong to the job.
    Silent,
    /// The answerer speaks the protocol but does not know the token.
    Unproven,
    /// The answerer does not speak the protocol.
    Unauthenticated(String),
}

impl Denied {
    /// Return whether a peer that knows the token sent this denial. Any peer can cause all other denials, so they are
    /// not conclusive.
    pub fn is_proven(&self) -> bool {
        matches!(self, Denied::Refused(_))
    }
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denied::Refused(refusal) => write!(f, "refused: {refusal}"),
            Denied::OtherToken => write!(f, "refused: it knows another token"),
            Denied::Silent => write!(f, "connected, but nothing answered"),
            Denied::Unproven => write!(f, "connected, but it is not a rank of this job: its proof is wrong"),
            Denied::Unauthenticated(cause) => write!(f, "connected, but it is not a rank of this job: {cause}"),
        }
    }
}

/// Authenticate both ends of `stream` before `deadline`. Return the connection, encrypted if the credentials ask for
/// TLS.
pub(crate) fn call(
    mut stream: Stream,
    credentials: &Credentials,
    greeting: &Greeting,
    deadline: Instant,
) -> Result<Stream, Denied> {
    let token = &credentials.token;
    let preauth_tag = preauth_tag(token).map_err(|error| Denied::Unauthenticated(error.to_string()))?;
    stream.set_timeout(deadline.saturating_duration_since(Instant::now())).map_err(denied)?;
    stream.write_all(&preauth_tag).map_err(denied)?;
    let mut stream = match stream {
        Stream::Tcp(socket) if credentials.tls.covers(stays_on_host(&socket)) => {
            let session = TlsSession::call(socket, token).map_err(denied)?;
            run_handshake(Stream::Tls(Box::new(session)), deadline)?
        }
        stream => stream,
    };
    let binding = stream.binding().map_err(denied)?;
    let mut own_challenge = [0; CHALLENGE_BYTES];
    fill_random(&mut own_challenge).map_err(|error| Denied::Unauthenticated(error.to_string()))?;
    let greeting = greeting.encode(&own_challenge);
    stream.set_timeout(deadline.saturating_duration_since(Instant::now())).map_err(denied)?;
    stream.write_all(&greeting).map_err(denied)?;

    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact_until(&mut challenge, deadline).map_err(denied)?;
    if challenge == OTHER_TOKEN {
        return Err(Denied::OtherToken);
    }
    stream.write_all(&seal(token, "caller", &[&greeting, &challenge, &binding])).map_err(denied)?;

    let mut frame = [0; VERDICT_BYTES];
    stream.read_exact_until(&mut frame, deadline).map_err(denied)?;
    let (verdict, proof) = frame.split_first_chunk::<8>().expect("a verdict is longer than 8 bytes");
    match Refusal::decode(verdict) {
        Some(refusal) if is_seal(proof, token, "answerer", &[verdict, &greeting, &challenge, &binding]) => {
            refusal.map_or(Ok(stream), |refusal| Err(Denied::Refused(refusal)))
        }
        _ => Err(Denied::Unproven),
    }
}

/// Run the TLS handshake and return the encrypted connection.
fn run_handshake(mut stream: Stream, deadline: Instant) -> Result<Stream, Denied> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Denied::Silent);
        }
        stream.set_timeout(left).map_err(denied)?;
        let Stream::Tls(session) = &mut stream else { return Ok(stream) };
        match session.handshake() {
            Ok(true) => return Ok(stream),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(denied(error)),
        }
    }
}

fn denied(error: io::Error) -> Denied {
    match error.kind() {
        _ if is_wrong_token(&error) => Denied::OtherToken,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Denied::Silent,
        _ => Denied::Unauthenticated(error.to_string()),
    }
}

/// Return whether a session failed because either end rejected the other's key as not derived from its token.
fn is_wrong_token(error: &io::Error) -> bool {
    use rustls::Error::{AlertReceived, InvalidCertificate};
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(InvalidCertificate(_) | AlertReceived(rustls::AlertDescription::UnknownCA)))
}
