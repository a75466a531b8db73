//! Fuzz tests of damaged connection set-up: no peer is accepted, nothing panics, and memory use stays small.

use super::preauth_tag::preauth_tag;
use super::*;
use crate::config::{Credentials, Encryption};
use crate::stream::Stream;
use crate::tls::{answering, calling};
use ripieno_fuzz::{Fuzz, FuzzAllocator, FuzzRandom};
use std::io::{Cursor, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: FuzzAllocator = FuzzAllocator;

const GREETING: Greeting =
    Greeting { purpose: ConnectionPurpose::Data, from: 3, to: 0, world_size: 4, nonce: JobNonce([7; 16]) };

fn fuzz(name: &'static str, valid: impl IntoIterator<Item = Vec<u8>>) -> Fuzz {
    Fuzz::new(name, env!("CARGO_MANIFEST_DIR"), valid)
}

fn token() -> Token {
    Token::from_secret("a")
}

#[test]
fn damaged_greetings_and_verdicts_have_one_encoding_or_none() {
    let verdict = |refusal| [&Refusal::encode(refusal)[..], &[0; GREETING_BYTES - 8]].concat();
    let valid = [GREETING.encode(&[5; CHALLENGE_BYTES]).to_vec(), verdict(None), verdict(Some(Refusal::Rank(7)))];
    fuzz("greeting", valid).run(|bytes| {
        let frame: &GreetingFrame = bytes.first_chunk()?;
        let greeting = Greeting::decode(frame);
        let challenge = frame.last_chunk().expect("a greeting ends with a challenge");
        assert!(greeting.is_none_or(|greeting| greeting.encode(challenge) == *frame), "a greeting has one encoding");
        let refusal = frame.first_chunk().and_then(Refusal::decode);
        Some((greeting.map(|greeting| greeting.purpose as u8), refusal.map(|refusal| Refusal::encode(refusal)[0])))
    });
}

/// Return the first TLS message of a caller that encrypts.
fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    calling(&token()).unwrap().write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_damaged_caller_is_unauthenticated_or_has_another_token() {
    let greeting = GREETING.encode(&[5; CHALLENGE_BYTES]);
    let proof = seal(&token(), "caller", &[&greeting, &[9; CHALLENGE_BYTES], &[0; 32]]);
    let preauth_tag = preauth_tag(&token()).unwrap();
    call_damaged("preauth_tag", &[], [preauth_tag.to_vec(), [&preauth_tag[..], &greeting].concat()]);
    call_damaged("caller", &preauth_tag, [[&greeting[..], &proof].concat(), hello()]);
}

/// Connect callers that send `ahead` undamaged and then damaged variants of `valid`.
fn call_damaged(name: &'static str, ahead: &[u8], valid: [Vec<u8>; 2]) {
    let credentials = Credentials { token: token(), tls: Encryption::BetweenHosts };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fuzz(name, valid).allowing(|bytes| (256 << 10) + 256 * bytes).one_of(20).run(|bytes| {
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let acceptor_end = Stream::Tcp(listener.accept().unwrap().0);
        caller.write_all(&[ahead, bytes].concat()).unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        let mut pending = PendingConnection::new(acceptor_end, Instant::now() + Duration::from_secs(5)).unwrap();
        loop {
            match pending.advance(&credentials, &mut |_| panic!("an unauthenticated peer reaches no authorization")) {
                Answer::Waiting(waiting) => pending = waiting,
                Answer::Unauthenticated => return 0,
                Answer::WrongToken(_) => return 1,
                Answer::Accepted(..) | Answer::Refused(..) => panic!("an unauthenticated peer was authenticated"),
            }
        }
    });
}

/// Two ends of a session with damaged traffic. Every three bytes of the input give the position and the change
/// of one byte.
struct SessionPair<'a> {
    damage: &'a [u8],
    sent: usize,
}

impl SessionPair<'_> {
    /// Carry pending bytes from one end to the other. Return whether any were pending, and the receiver's result.
    fn carry(&mut self, from: &mut rustls::Connection, to: &mut rustls::Connection) -> Result<bool, rustls::Error> {
        let mut bytes = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut bytes).expect("writes to memory succeed");
        }
        for change in self.damage.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([change[0], change[1]])).wrapping_sub(self.sent);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= change[2];
            }
        }
        self.sent += bytes.len();
        let mut rest = Cursor::new(&bytes);
        while (rest.position() as usize) < bytes.len() {
            to.read_tls(&mut rest).expect("reads from memory succeed");
            to.process_new_packets()?;
        }
        Ok(!bytes.is_empty())
    }
}

/// Run a session over a damaged wire. Data that a session delivers must arrive unchanged.
fn session(damage: &[u8]) -> Result<usize, rustls::Error> {
    let [mut caller, mut acceptor_end] = [calling(&token())?, answering(&token())?];
    let mut wire = SessionPair { damage, sent: 0 };
    for sends_data in [false, true] {
        if sends_data {
            caller.writer().write_all(b"data").expect("writes to memory succeed");
        }
        while wire.carry(&mut caller, &mut acceptor_end)? | wire.carry(&mut acceptor_end, &mut caller)? {}
    }
    let mut received = [0; 8];
    let count = acceptor_end.reader().read(&mut received).unwrap_or(0);
    assert!(count == 0 || &received[..count] == b"data", "{received:?}");
    Ok(count)
}

#[test]
fn a_damaged_session_fails() {
    let mut random = FuzzRandom::new(1);
    let changed = (0..8).map(|_| vec![random.draw() as u8, random.below(4) as u8, 1]);
    let inputs = std::iter::once(vec![0; 3]).chain(changed);
    let fuzz = fuzz("tls-session", inputs).allowing(|bytes| (256 << 10) + 256 * bytes).one_of(100);
    fuzz.run(|damage| session(damage).map_err(|error| error.to_string()));
}
