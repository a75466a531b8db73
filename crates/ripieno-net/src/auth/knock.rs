//! The knock: what a caller says ahead of everything, which tells it from a stranger at the cost of one keyed hash.
//!
//! A knock proves little: whoever was on the way may say it again, and comes as far as the challenge. So it is all that
//! a stranger has to make up before it costs an answerer anything else.

use super::{CHALLENGE_BYTES, PROOF_BYTES, is_seal, seal};
use crate::config::{Token, fill_random};
use crate::error::NetError;
use crate::stream::Stream;
use std::io::Write;

/// Other bytes than the greeting's, so that neither passes for the other.
const MAGIC: [u8; 8] = *b"RIPIENO\x02";
/// What is sealed: the magic bytes, and some that make it another knock each time.
const SEALED_BYTES: usize = 24;
pub(super) const KNOCK_BYTES: usize = SEALED_BYTES + PROOF_BYTES;

/// What who knocked with another token is told where ranks meet. It is read by both kinds of callers: an alert of TLS,
/// "unknown CA", and as long as the challenge that a caller awaits who does not encrypt.
pub(super) const OTHER_TOKEN: [u8; CHALLENGE_BYTES] = {
    let mut word = [0; CHALLENGE_BYTES];
    (word[0], word[1], word[2], word[4], word[5], word[6]) = (21, 3, 3, 2, 2, 48);
    word
};

/// A new knock of who knows `token`.
pub(super) fn knock(token: &Token) -> Result<[u8; KNOCK_BYTES], NetError> {
    let mut knock = [0; KNOCK_BYTES];
    knock[..MAGIC.len()].copy_from_slice(&MAGIC);
    fill_random(&mut knock[MAGIC.len()..SEALED_BYTES])?;
    let proof = seal(token, "knock", &[&knock[..SEALED_BYTES]]);
    knock[SEALED_BYTES..].copy_from_slice(&proof);
    Ok(knock)
}

/// Whether these may be the first bytes of a knock.
pub(super) fn may_knock(bytes: &[u8]) -> bool {
    bytes.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected)
}

/// Whether that is a knock of who knows `token`.
pub(super) fn is_knock(knock: &[u8; KNOCK_BYTES], token: &Token) -> bool {
    may_knock(knock) && is_seal(&knock[SEALED_BYTES..], token, "knock", &[&knock[..SEALED_BYTES]])
}

/// Tells who has knocked with another token that this is so.
pub(crate) fn tell_other_token(stream: &mut Stream) {
    // Who does not hear it comes again.
    let _ = stream.write(&OTHER_TOKEN);
}
