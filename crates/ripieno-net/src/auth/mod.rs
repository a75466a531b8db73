//! Authentication: both ends of a connection prove that they know the job's token before anything else is read.
//!
//! Challenge and response with HMAC-SHA256 over fixed-size frames. The caller proves itself first, so a stranger who
//! calls learns nothing from the answer. Ahead of that it tags: a stranger is known by its first wrong byte, or by
//! one keyed hash, before anything is drawn, signed or answered for it.
//!
//! ```text
//! caller -> answerer   tag      56 bytes: magic, random bytes, HMAC(token, "tag" + both)
//! caller -> answerer   greeting   72 bytes: who, to whom, for what, job nonce, the caller's challenge
//! answerer -> caller   challenge  32 bytes
//! caller -> answerer   proof      32 bytes: HMAC(token, "caller" + greeting + challenge + binding)
//! answerer -> caller   verdict    40 bytes: refusal or welcome,
//!                                 HMAC(token, "answerer" + verdict + greeting + challenge + binding)
//! ```
//!
//! Callers that encrypt go on with the handshake of TLS, and all but the tag passes inside. The binding stands for
//! that one session, so that a proof is worth nothing in another; without TLS it is zeros. An answerer hears both
//! kinds, so that one whose kind is not its own is refused under the token's seal, not by what anybody could say.
//!
//! Cost: two round trips per connection, three with TLS; 1 µs of computing for a stranger.

mod answer;
mod call;
mod preauth_tag;

pub(crate) use answer::{Answer, PendingConnection, least_welcome};
pub(crate) use call::{Denied, call};
pub(crate) use preauth_tag::tell_other_token;
use preauth_tag::{OTHER_TOKEN, PREAUTH_TAG_BYTES};

use crate::config::Token;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const MAGIC: [u8; 8] = *b"RIPIENO\x01";
const GREETING_BYTES: usize = 72;
const CHALLENGE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
const VERDICT_BYTES: usize = 40;

/// The nonce of a job: drawn by rank 0, so that ranks of an earlier run of the job are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobNonce(pub [u8; 16]);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ConnectionPurpose {
    /// The membership protocol.
    Control = 1,
    /// A link.
    Data = 2,
    /// The exchange of addresses.
    Rendezvous = 3,
    /// What the process that launches a job and a member of it tell each other.
    Member = 4,
    /// The agreement of those who are left of a world that has failed.
    Agreement = 5,
    /// The link for messages from the caller.
    Messages = 6,
}

/// What a caller says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub purpose: ConnectionPurpose,
    pub from: u32,
    pub to: u32,
    pub world_size: u32,
    pub nonce: JobNonce,
}

type GreetingFrame = [u8; GREETING_BYTES];

impl Greeting {
    fn encode(&self, challenge: &[u8; CHALLENGE_BYTES]) -> GreetingFrame {
        let mut frame = [0; GREETING_BYTES];
        frame[0..8].copy_from_slice(&MAGIC);
        frame[8] = self.purpose as u8;
        frame[12..16].copy_from_slice(&self.from.to_le_bytes());
        frame[16..20].copy_from_slice(&self.to.to_le_bytes());
        frame[20..24].copy_from_slice(&self.world_size.to_le_bytes());
        frame[24..40].copy_from_slice(&self.nonce.0);
        frame[40..72].copy_from_slice(challenge);
        frame
    }

    fn decode(frame: &GreetingFrame) -> Option<Greeting> {
        let word = |at: usize| frame[at..].first_chunk().copied().map(u32::from_le_bytes);
        let purpose = match frame[8] {
            1 => ConnectionPurpose::Control,
            2 => ConnectionPurpose::Data,
            3 => ConnectionPurpose::Rendezvous,
            4 => ConnectionPurpose::Member,
            5 => ConnectionPurpose::Agreement,
            6 => ConnectionPurpose::Messages,
            _ => return None,
        };
        let nonce = JobNonce(*frame[24..].first_chunk()?);
        let known = frame[0..8] == MAGIC && frame[9..12] == [0; 3];
        known.then_some(Greeting { purpose, from: word(12)?, to: word(16)?, world_size: word(20)?, nonce })
    }
}

/// Why a caller is not welcome, although the answerer is what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The nonce is of another run of the job.
    Job,
    /// The answerer is this rank.
    Rank(u32),
    /// The answerer's world has this size.
    WorldSize(u32),
    /// A rank of that number is already here.
    Taken,
    /// Nobody expects a connection for that purpose here.
    Purpose,
    /// Connections are encrypted here, or they are not.
    Tls(bool),
}

impl Refusal {
    fn encode(refusal: Option<Refusal>) -> [u8; 8] {
        let (code, detail) = match refusal {
            None => (0, 0),
            Some(Refusal::Job) => (2, 0),
            Some(Refusal::Rank(rank)) => (3, rank),
            Some(Refusal::WorldSize(world_size)) => (4, world_size),
            Some(Refusal::Taken) => (5, 0),
            Some(Refusal::Purpose) => (6, 0),
            Some(Refusal::Tls(tls)) => (7, u32::from(tls)),
        };
        let mut bytes = [0; 8];
        bytes[0] = code;
        bytes[4..].copy_from_slice(&u32::to_le_bytes(detail));
        bytes
    }

    /// `None` for bytes that are no verdict.
    fn decode(bytes: &[u8; 8]) -> Option<Option<Refusal>> {
        let detail = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Some(match bytes[0] {
            0 => None,
            2 => Some(Refusal::Job),
            3 => Some(Refusal::Rank(detail)),
            4 => Some(Refusal::WorldSize(detail)),
            5 => Some(Refusal::Taken),
            6 => Some(Refusal::Purpose),
            7 => Some(Refusal::Tls(detail != 0)),
            _ => return None,
        })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Job => write!(f, "it belongs to another run of the job"),
            Refusal::Rank(rank) => write!(f, "it is rank {rank}"),
            Refusal::WorldSize(world_size) => write!(f, "its world size is {world_size}"),
            Refusal::Taken => write!(f, "it has a connection from a rank of the same number"),
            Refusal::Purpose => write!(f, "it expects no such connection"),
            Refusal::Tls(true) => write!(f, "it encrypts connections like this one (tls) and this rank does not"),
            Refusal::Tls(false) => write!(f, "it does not encrypt connections like this one (tls) and this rank does"),
        }
    }
}

/// HMAC-SHA256 of `parts` under the token; `role` keeps one use of it from passing for another.
pub(crate) fn seal(token: &Token, role: &str, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
    mac(token, role, parts).finalize().into_bytes().into()
}

/// Whether `proof` is the seal of `parts`; takes the same time wherever it differs.
pub(crate) fn is_seal(proof: &[u8], token: &Token, role: &str, parts: &[&[u8]]) -> bool {
    mac(token, role, parts).verify_slice(proof).is_ok()
}

fn mac(token: &Token, role: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.bytes()).expect("HMAC takes keys of every length");
    mac.update(b"ripieno ");
    mac.update(role.as_bytes());
    mac.update(&[0]);
    parts.iter().for_each(|part| mac.update(part));
    mac
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
