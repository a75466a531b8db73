//! The pre-authentication tag: the first bytes that a caller sends. Verifying it costs one keyed hash.
//!
//! An on-path attacker can replay a tag and then receives the challenge, so a tag proves little. It only lets the
//! answerer reject unauthenticated peers cheaply, before any other work.

use super::{CHALLENGE_BYTES, PROOF_BYTES, is_seal, seal};
use crate::config::{Token, fill_random};
use crate::error::NetError;
use crate::stream::Stream;
use std::io::Write;

/// Differs from the magic bytes of the greeting, so that neither is valid as the other.
const MAGIC: [u8; 8] = *b"RIPIENO\x02";
/// Size of the sealed part: the magic bytes and 16 random bytes that make every tag unique.
const SEALED_BYTES: usize = 24;
pub(super) const PREAUTH_TAG_BYTES: usize = SEALED_BYTES + PROOF_BYTES;

/// The answer to a tag that was made with another token. Both kinds of callers understand it: it is a TLS alert,
/// "unknown CA", and has the length of the challenge that a caller without TLS expects.
pub(super) const OTHER_TOKEN: [u8; CHALLENGE_BYTES] = {
    let mut alert = [0; CHALLENGE_BYTES];
    (alert[0], alert[1], alert[2], alert[4], alert[5], alert[6]) = (21, 3, 3, 2, 2, 48);
    alert
};

/// Create a new tag under `token`.
pub(super) fn preauth_tag(token: &Token) -> Result<[u8; PREAUTH_TAG_BYTES], NetError> {
    let mut preauth_tag = [0; PREAUTH_TAG_BYTES];
    preauth_tag[..MAGIC.len()].copy_from_slice(&MAGIC);
    fill_random(&mut preauth_tag[MAGIC.len()..SEALED_BYTES])?;
    let proof = seal(token, "preauth_tag", &[&preauth_tag[..SEALED_BYTES]]);
    preauth_tag[SEALED_BYTES..].copy_from_slice(&proof);
    Ok(preauth_tag)
}

/// Return whether `bytes` can be the start of a tag.
pub(super) fn is_tag_prefix(bytes: &[u8]) -> bool {
    bytes.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected)
}

/// Return whether the tag was made with `token`.
pub(super) fn is_tag(preauth_tag: &[u8; PREAUTH_TAG_BYTES], token: &Token) -> bool {
    is_tag_prefix(preauth_tag)
        && is_seal(&preauth_tag[SEALED_BYTES..], token, "preauth_tag", &[&preauth_tag[..SEALED_BYTES]])
}

/// Notify a caller that its tag was made with another token.
pub(crate) fn send_wrong_token(stream: &mut Stream) {
    // A caller that misses the answer calls again.
    let _ = stream.write(&OTHER_TOKEN);
}
