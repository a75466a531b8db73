//! The tag: what a caller says ahead of everything, which tells it from a stranger at the cost of one keyed hash.
//!
//! A tag proves little: whoever was on the way may say it again, and comes as far as the challenge. So it is all that
//! a stranger has to make up before it costs an answerer anything else.

use super::{CHALLENGE_BYTES, PROOF_BYTES, is_seal, seal};
use crate::config::{Token, fill_random};
use crate::error::NetError;
use crate::stream::Stream;
use std::io::Write;

/// Other bytes than the greeting's, so that neither passes for the other.
const MAGIC: [u8; 8] = *b"RIPIENO\x02";
/// What is sealed: the magic bytes, and some that make it another tag each time.
const SEALED_BYTES: usize = 24;
pub(super) const PREAUTH_TAG_BYTES: usize = SEALED_BYTES + PROOF_BYTES;

/// What who sent its tag with another token is told where ranks meet. It is read by both kinds of callers: an alert of TLS,
/// "unknown CA", and as long as the challenge that a caller awaits who does not encrypt.
pub(super) const OTHER_TOKEN: [u8; CHALLENGE_BYTES] = {
    let mut word = [0; CHALLENGE_BYTES];
    (word[0], word[1], word[2], word[4], word[5], word[6]) = (21, 3, 3, 2, 2, 48);
    word
};

/// A new tag of who knows `token`.
pub(super) fn preauth_tag(token: &Token) -> Result<[u8; PREAUTH_TAG_BYTES], NetError> {
    let mut preauth_tag = [0; PREAUTH_TAG_BYTES];
    preauth_tag[..MAGIC.len()].copy_from_slice(&MAGIC);
    fill_random(&mut preauth_tag[MAGIC.len()..SEALED_BYTES])?;
    let proof = seal(token, "preauth_tag", &[&preauth_tag[..SEALED_BYTES]]);
    preauth_tag[SEALED_BYTES..].copy_from_slice(&proof);
    Ok(preauth_tag)
}

/// Whether these may be the first bytes of a tag.
pub(super) fn may_send_tag(bytes: &[u8]) -> bool {
    bytes.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected)
}

/// Whether that is a tag of who knows `token`.
pub(super) fn is_tag(preauth_tag: &[u8; PREAUTH_TAG_BYTES], token: &Token) -> bool {
    may_send_tag(preauth_tag)
        && is_seal(&preauth_tag[SEALED_BYTES..], token, "preauth_tag", &[&preauth_tag[..SEALED_BYTES]])
}

/// Tells who has sent its tag with another token that this is so.
pub(crate) fn tell_other_token(stream: &mut Stream) {
    // Who does not hear it comes again.
    let _ = stream.write(&OTHER_TOKEN);
}
