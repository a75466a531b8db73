use super::*;
use crate::stream::Stream;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const GREETING: Greeting =
    Greeting { purpose: Purpose::Control, from: 3, to: 0, world_size: 4, nonce: JobNonce([7; 16]) };

fn token(text: &str) -> Token {
    Token::from_secret(text)
}

fn pair() -> (Stream, Visitor) {
    let (caller, answerer) = UnixStream::pair().unwrap();
    let visitor = Visitor::new(Stream::Unix(answerer), Instant::now() + Duration::from_secs(5)).unwrap();
    (Stream::Unix(caller), visitor)
}

/// Answers until the visitor has said all or has gone.
fn answer(mut visitor: Visitor, token: &Token, judge: &mut dyn FnMut(&Greeting) -> Result<(), Refusal>) -> Answer {
    loop {
        match visitor.advance(token, judge) {
            Answer::Waiting(waiting) => visitor = waiting,
            end => return end,
        }
    }
}

fn meet(callers: &Token, answerers: &Token, verdict: Result<(), Refusal>) -> (Result<(), Denied>, Answer) {
    let (mut caller, visitor) = pair();
    std::thread::scope(|scope| {
        let deadline = Instant::now() + Duration::from_secs(5);
        let called = scope.spawn(move || call(&mut caller, callers, &GREETING, deadline));
        let answer = answer(visitor, answerers, &mut |_| verdict);
        (called.join().unwrap(), answer)
    })
}

#[test]
fn who_knows_the_token_is_welcome_and_known() {
    let (called, answered) = meet(&token("a"), &token("a"), Ok(()));
    assert_eq!(called, Ok(()));
    assert!(matches!(answered, Answer::Welcome(_, GREETING)));
}

#[test]
fn who_knows_another_token_is_refused_and_told() {
    let (called, answered) = meet(&token("a"), &token("b"), Ok(()));
    assert_eq!(called, Err(Denied::Refused(Refusal::Token)));
    assert!(matches!(answered, Answer::WrongToken));
}

#[test]
fn every_refusal_arrives() {
    use Refusal::*;
    for refusal in [Job, Rank(9), WorldSize(1 << 20), Taken, Purpose] {
        let (called, answered) = meet(&token("a"), &token("a"), Err(refusal));
        assert_eq!(called, Err(Denied::Refused(refusal)));
        assert!(matches!(answered, Answer::Refused(GREETING, r) if r == refusal));
    }
}

#[test]
fn an_answerer_without_the_token_is_found_out() {
    let (mut caller, visitor) = pair();
    let mut liar = visitor.stream;
    liar.set_nonblocking(false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            liar.read_exact(&mut [0; GREETING_BYTES]).unwrap();
            liar.write_all(&[1; CHALLENGE_BYTES]).unwrap();
            liar.read_exact(&mut [0; PROOF_BYTES]).unwrap();
            liar.write_all(&[0; VERDICT_BYTES]).unwrap();
        });
        let denied = call(&mut caller, &token("a"), &GREETING, Instant::now() + Duration::from_secs(5));
        assert_eq!(denied, Err(Denied::Unproven));
    });
}

#[test]
fn a_silent_answerer_costs_no_more_than_the_deadline() {
    let (mut caller, _visitor) = pair();
    let denied = call(&mut caller, &token("a"), &GREETING, Instant::now() + Duration::from_millis(20));
    assert_eq!(denied, Err(Denied::Silent));
}

#[test]
fn a_recorded_call_is_worth_nothing_the_second_time() {
    let (mut caller, visitor) = pair();
    let frame = GREETING.encode(&[5; CHALLENGE_BYTES]);
    let proof = seal(&token("a"), "caller", &[&frame, &[9; CHALLENGE_BYTES]]);
    caller.write_all(&[&frame[..], &proof].concat()).unwrap();
    assert!(matches!(answer(visitor, &token("a"), &mut |_| Ok(())), Answer::WrongToken));
}

proptest! {
    #[test]
    fn hostile_bytes_never_get_in_and_never_get_read_beyond_the_frames(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        with_magic: bool,
    ) {
        let (mut caller, visitor) = pair();
        let mut bytes = bytes;
        if with_magic {
            bytes.splice(0..0, GREETING.encode(&[5; CHALLENGE_BYTES]));
        }
        caller.write_all(&bytes).unwrap();
        drop(caller);
        let answered = answer(visitor, &token("a"), &mut |_| panic!("a stranger is never judged"));
        prop_assert!(matches!(answered, Answer::Stranger | Answer::WrongToken), "{:?}", answered);
    }
}
