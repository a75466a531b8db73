//! Tests of the authentication: accepted, refused and unauthenticated callers, with and without TLS.

use super::preauth_tag::preauth_tag;
use super::*;
use crate::config::{Credentials, Encryption};
use crate::stream::Stream;
use crate::tls::{BINDING_BYTES, TlsSession};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const GREETING: Greeting =
    Greeting { purpose: ConnectionPurpose::Control, from: 3, to: 0, world_size: 4, nonce: JobNonce([7; 16]) };

fn token(text: &str) -> Token {
    Token::from_secret(text)
}

fn plain(text: &str) -> Credentials {
    Credentials { token: token(text), tls: Encryption::Off }
}

fn encrypted(text: &str) -> Credentials {
    Credentials { token: token(text), tls: Encryption::Everywhere }
}

fn pair() -> (Stream, PendingConnection) {
    let (caller, acceptor_end) = UnixStream::pair().unwrap();
    let pending = PendingConnection::new(Stream::Unix(acceptor_end), Instant::now() + Duration::from_secs(5)).unwrap();
    (Stream::Unix(caller), pending)
}

fn tcp_pair() -> (Stream, PendingConnection) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let acceptor_end = Stream::Tcp(listener.accept().unwrap().0);
    (Stream::Tcp(caller), PendingConnection::new(acceptor_end, Instant::now() + Duration::from_secs(5)).unwrap())
}

/// Answer until the pending connection completes or fails.
fn answer(
    mut pending: PendingConnection,
    credentials: &Credentials,
    authorize: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>,
) -> Answer {
    loop {
        match pending.advance(credentials, authorize) {
            Answer::Waiting(waiting) => pending = waiting,
            end => return end,
        }
    }
}

fn authenticate(
    callers: &Credentials,
    acceptor_credentials: &Credentials,
    verdict: Result<(), Refusal>,
) -> (Result<Stream, Denied>, Answer) {
    authenticate_over(pair(), callers, acceptor_credentials, verdict)
}

fn authenticate_over(
    (caller, pending): (Stream, PendingConnection),
    callers: &Credentials,
    acceptor_credentials: &Credentials,
    verdict: Result<(), Refusal>,
) -> (Result<Stream, Denied>, Answer) {
    std::thread::scope(|scope| {
        let deadline = Instant::now() + Duration::from_secs(5);
        let called = scope.spawn(move || call(caller, callers, &GREETING, deadline));
        let mut answer = answer(pending, acceptor_credentials, &mut |_| verdict);
        if let Answer::WrongToken(stream) = &mut answer {
            send_wrong_token(stream);
        }
        (called.join().unwrap(), answer)
    })
}

#[test]
fn a_caller_with_the_token_is_accepted_and_identified() {
    let (called, answered) = authenticate(&plain("a"), &plain("a"), Ok(()));
    assert!(called.is_ok());
    assert!(matches!(answered, Answer::Accepted(_, GREETING)));
}

#[test]
fn a_caller_with_another_token_is_refused_and_notified() {
    let (called, answered) = authenticate(&plain("a"), &plain("b"), Ok(()));
    assert_eq!(called.unwrap_err(), Denied::OtherToken);
    assert!(matches!(answered, Answer::WrongToken(_)));
}

#[test]
fn every_refusal_arrives() {
    use Refusal::*;
    for refusal in [Job, Rank(9), WorldSize(1 << 20), Taken, Purpose, Tls(true), Tls(false)] {
        let (called, answered) = authenticate(&plain("a"), &plain("a"), Err(refusal));
        assert_eq!(called.unwrap_err(), Denied::Refused(refusal));
        assert!(matches!(answered, Answer::Refused(GREETING, r) if r == refusal));
    }
}

#[test]
fn an_answerer_without_the_token_is_rejected() {
    let (caller, pending) = pair();
    let mut impostor = pending.stream;
    impostor.set_nonblocking(false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            impostor.read_exact(&mut [0; PREAUTH_TAG_BYTES + GREETING_BYTES]).unwrap();
            impostor.write_all(&[1; CHALLENGE_BYTES]).unwrap();
            impostor.read_exact(&mut [0; PROOF_BYTES]).unwrap();
            impostor.write_all(&[0; VERDICT_BYTES]).unwrap();
        });
        let denied = call(caller, &plain("a"), &GREETING, Instant::now() + Duration::from_secs(5));
        assert_eq!(denied.unwrap_err(), Denied::Unproven);
    });
}

#[test]
fn a_call_to_a_silent_answerer_ends_at_the_deadline() {
    for (wanted, (caller, _pending)) in [(plain("a"), pair()), (encrypted("a"), tcp_pair())] {
        let denied = call(caller, &wanted, &GREETING, Instant::now() + Duration::from_millis(20));
        assert_eq!(denied.unwrap_err(), Denied::Silent);
    }
}

#[test]
fn a_flood_from_one_address_evicts_only_its_own_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut callers = Vec::new();
    let mut pending = |source: &str| {
        let caller = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        caller.bind(&std::net::SocketAddr::new(source.parse().unwrap(), 0).into()).unwrap();
        caller.connect(&listener.local_addr().unwrap().into()).unwrap();
        callers.push(caller);
        PendingConnection::new(Stream::Tcp(listener.accept().unwrap().0), Instant::now() + Duration::from_secs(5))
            .unwrap()
    };
    let connections = ["127.0.0.2", "127.0.0.1", "127.0.0.3", "127.0.0.1", "127.0.0.2", "127.0.0.1"].map(&mut pending);
    assert_eq!(connection_to_evict(connections.iter()), Some(1));
    assert_eq!(connection_to_evict(connections[..1].iter()), Some(0));
    assert_eq!(connection_to_evict([].iter()), None);
}

#[test]
fn connections_without_a_tag_are_evicted_first() {
    let [(mut first, first_pending), (_second, second_pending)] = [pair(), pair()];
    first.write_all(&preauth_tag(&token("a")).unwrap()).unwrap();
    let advanced = [first_pending, second_pending].map(|pending| pending.advance(&plain("a"), &mut |_| Ok(())));
    let [Answer::Waiting(tagged), Answer::Waiting(silent)] = advanced else {
        panic!("both connections are incomplete")
    };
    let pending_connections = [tagged, silent];
    assert_eq!(connection_to_evict(pending_connections.iter()), Some(1));
    assert_eq!(
        connection_to_evict(pending_connections[..1].iter()),
        Some(0),
        "tagged connections are evicted if all are tagged"
    );
}

/// Send `bytes` and return all bytes received in response, and whether the peer seems to use another token.
fn reply_to(bytes: &[u8]) -> (Vec<u8>, bool) {
    let (mut unauthenticated, pending) = pair();
    unauthenticated.write_all(bytes).unwrap();
    // Dropping the connection closes it.
    let is_wrong_token_answer =
        match pending.advance(&plain("a"), &mut |_| panic!("an unauthenticated peer is not authorized")) {
            Answer::Unauthenticated => false,
            Answer::WrongToken(_) => true,
            answer => panic!("{answer:?}"),
        };
    let mut received = Vec::new();
    // The connection is reset if unread bytes remain.
    let _ = unauthenticated.read_to_end(&mut received);
    (received, is_wrong_token_answer)
}

#[test]
fn an_unauthenticated_peer_gets_no_reply_and_is_closed_at_its_first_wrong_byte() {
    let greeting = GREETING.encode(&[5; CHALLENGE_BYTES]);
    for sent in [&b"G"[..], b"RIPIENO\x03", b"\x16\x03\x01", &greeting] {
        assert_eq!(reply_to(sent), (vec![], false));
    }
}

#[test]
fn a_wrong_preauth_tag_gets_no_answer() {
    let mut changed = preauth_tag(&token("a")).unwrap();
    changed[PREAUTH_TAG_BYTES - 1] ^= 1;
    let greeting = GREETING.encode(&[5; CHALLENGE_BYTES]);
    for sent in [changed, preauth_tag(&token("b")).unwrap()] {
        assert_eq!(reply_to(&[&sent[..], &greeting].concat()), (vec![], true));
    }
}

#[test]
fn no_two_preauth_tags_are_equal() {
    assert_ne!(preauth_tag(&token("a")).unwrap(), preauth_tag(&token("a")).unwrap());
}

#[test]
fn a_replayed_call_is_rejected() {
    let (mut caller, pending) = pair();
    let frame = GREETING.encode(&[5; CHALLENGE_BYTES]);
    let proof = seal(&token("a"), "caller", &[&frame, &[9; CHALLENGE_BYTES], &[0; BINDING_BYTES]]);
    caller.write_all(&[&preauth_tag(&token("a")).unwrap()[..], &frame, &proof].concat()).unwrap();
    assert!(matches!(answer(pending, &plain("a"), &mut |_| Ok(())), Answer::Unauthenticated));
}

#[test]
fn both_ends_of_an_encrypted_connection_hold_one_session() {
    let (called, answered) = authenticate_over(tcp_pair(), &encrypted("a"), &encrypted("a"), Ok(()));
    let (Ok(mut caller), Answer::Accepted(mut acceptor_end, GREETING)) = (called, answered) else {
        panic!("both ends have the token")
    };
    assert_eq!(caller.binding().unwrap(), acceptor_end.binding().unwrap());
    assert_ne!(caller.binding().unwrap(), [0; BINDING_BYTES]);
    let Stream::Tls(session) = &caller else { panic!("it is encrypted") };
    assert_eq!(session.cipher(), Some(crate::tls::CIPHER));
    caller.write_all(b"data").unwrap();
    acceptor_end.set_nonblocking(false).unwrap();
    let mut received = [0; 4];
    acceptor_end.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"data");
}

#[test]
fn both_ends_reject_keys_of_another_token() {
    let (called, answered) = authenticate_over(tcp_pair(), &encrypted("a"), &encrypted("b"), Ok(()));
    assert_eq!(called.unwrap_err(), Denied::OtherToken);
    assert!(matches!(answered, Answer::WrongToken(_)), "{answered:?}");
}

#[test]
fn keys_of_another_token_after_a_valid_tag_are_rejected() {
    let (Stream::Tcp(mut caller), pending) = tcp_pair() else { unreachable!() };
    caller.write_all(&preauth_tag(&token("a")).unwrap()).unwrap();
    let mut session = TlsSession::call(caller, &token("b")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || while session.handshake().is_ok_and(|is_done| !is_done) {});
        assert!(matches!(answer(pending, &encrypted("a"), &mut |_| Ok(())), Answer::Unauthenticated));
    });
}

#[test]
fn ends_with_different_tls_settings_refuse_each_other_under_seal() {
    for (callers, acceptor_credentials) in [(plain("a"), encrypted("a")), (encrypted("a"), plain("a"))] {
        let (called, answered) = authenticate_over(tcp_pair(), &callers, &acceptor_credentials, Ok(()));
        let encrypts = acceptor_credentials.tls == Encryption::Everywhere;
        assert_eq!(called.unwrap_err(), Denied::Refused(Refusal::Tls(encrypts)));
        assert!(matches!(answered, Answer::Refused(GREETING, Refusal::Tls(tls)) if tls == encrypts));
    }
}

#[test]
fn a_connection_within_a_host_is_encrypted_only_if_all_connections_are() {
    let between = Credentials { token: token("a"), tls: Encryption::BetweenHosts };
    let (called, answered) = authenticate_over(tcp_pair(), &between, &between, Ok(()));
    assert!(matches!((called, answered), (Ok(Stream::Tcp(_)), Answer::Accepted(Stream::Tcp(_), _))));
    // A caller with more protection than required is accepted; a caller with less is refused.
    let (called, answered) = authenticate_over(tcp_pair(), &encrypted("a"), &between, Ok(()));
    assert!(matches!((called, answered), (Ok(Stream::Tls(_)), Answer::Accepted(Stream::Tls(_), _))));
    let (called, _) = authenticate_over(tcp_pair(), &between, &encrypted("a"), Ok(()));
    assert_eq!(called.unwrap_err(), Denied::Refused(Refusal::Tls(true)));
}

#[test]
fn a_caller_with_an_older_tls_is_unauthenticated() {
    let (caller, pending) = tcp_pair();
    let mut hello = Vec::new();
    crate::tls::calling(&token("a")).unwrap().write_tls(&mut hello).unwrap();
    // The supported-versions extension, which lists only TLS 1.3.
    let versions = [0, 43, 0, 3, 2, 3, 4];
    let at = hello.windows(7).position(|bytes| bytes == versions).expect("the greeting names its version");
    hello[at + 6] = 3;
    let Stream::Tcp(mut caller) = caller else { unreachable!() };
    caller.write_all(&[&preauth_tag(&token("a")).unwrap()[..], &hello].concat()).unwrap();
    assert!(matches!(answer(pending, &encrypted("a"), &mut |_| Ok(())), Answer::Unauthenticated));
}

#[test]
fn a_proof_is_invalid_in_another_session() {
    // A relay that knows the token and forwards the proofs between two sessions, like an on-path attacker.
    let (first, second) = (encrypted("a"), encrypted("a"));
    let (caller, relay_answers) = tcp_pair();
    let (relay_calls, pending) = tcp_pair();
    let (Stream::Tcp(mut answering), Stream::Tcp(mut calling)) = (relay_answers.stream, relay_calls) else {
        unreachable!()
    };
    answering.set_nonblocking(false).unwrap();
    let (token, deadline) = (token("a"), Instant::now() + Duration::from_secs(5));
    std::thread::scope(|scope| {
        let called = scope.spawn(move || call(caller, &first, &GREETING, deadline));
        let answered = scope.spawn(move || answer(pending, &second, &mut |_| Ok(())));
        let mut preauth_tag = [0; PREAUTH_TAG_BYTES];
        answering.read_exact(&mut preauth_tag).unwrap();
        calling.write_all(&preauth_tag).unwrap();
        let mut sessions = [TlsSession::answer(answering, &token).unwrap(), TlsSession::call(calling, &token).unwrap()];
        sessions.iter_mut().for_each(|session| while !session.handshake().unwrap() {});
        let [down, up] = &mut sessions;
        relay(down, up, GREETING_BYTES);
        relay(up, down, CHALLENGE_BYTES);
        relay(down, up, PROOF_BYTES);
        assert!(matches!(answered.join().unwrap(), Answer::Unauthenticated));
        drop(sessions);
        assert!(called.join().unwrap().is_err());
    });
}

fn relay(from: &mut TlsSession, to: &mut TlsSession, bytes: usize) {
    let mut frame = vec![0; bytes];
    from.read_exact(&mut frame).unwrap();
    to.write_all(&frame).unwrap();
}

#[test]
fn a_flipped_byte_ends_an_encrypted_connection() {
    let (called, answered) = authenticate_over(tcp_pair(), &encrypted("a"), &encrypted("a"), Ok(()));
    let (Ok(Stream::Tls(caller)), Answer::Accepted(mut acceptor_end, _)) = (called, answered) else {
        panic!("both ends have the token")
    };
    // A record that does not decrypt with the caller's keys.
    let mut record = [7; 5 + 32];
    record[..5].copy_from_slice(&[23, 3, 3, 0, 32]);
    (&mut caller.socket()).write_all(&record).unwrap();
    acceptor_end.set_nonblocking(false).unwrap();
    let error = acceptor_end.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    assert_eq!(
        acceptor_end.read(&mut [0; 8]).unwrap_err().kind(),
        std::io::ErrorKind::InvalidData,
        "the error is permanent"
    );
}

proptest! {
    #[test]
    fn damaged_bytes_are_never_accepted(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        tags: bool,
        greets: bool,
        begins_tls: bool,
    ) {
        let (mut caller, pending) = if begins_tls { tcp_pair() } else { pair() };
        let mut bytes = bytes;
        if greets {
            bytes.splice(0..0, GREETING.encode(&[5; CHALLENGE_BYTES]));
        }
        if begins_tls {
            // A TLS handshake record of that many bytes.
            bytes.splice(0..0, [22, 3, 1, 0, bytes.len() as u8]);
        }
        if tags {
            bytes.splice(0..0, preauth_tag(&token("a")).unwrap());
        }
        caller.write_all(&bytes).unwrap();
        drop(caller);
        let answered = answer(pending, &plain("a"), &mut |_| panic!("an unauthenticated peer is not authorized"));
        prop_assert!(matches!(answered, Answer::Unauthenticated | Answer::WrongToken(_)), "{:?}", answered);
    }
}
