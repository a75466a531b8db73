//! The cryptography of sessions: one cipher suite, one exchange of keys, one kind of signature.
//!
//! The default of `rustls` has all that `ring` can do, curves and their tables among it, and so would the library.

use crate::config::fill_random;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::crypto::ring::{cipher_suite, kx_group};
use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use rustls::{Error, SignatureScheme};
use std::sync::Arc;
use webpki::ring::ED25519;

static SIGNATURES: WebPkiSupportedAlgorithms =
    WebPkiSupportedAlgorithms { all: &[ED25519], mapping: &[(SignatureScheme::ED25519, &[ED25519])] };

/// What both ends of a session use.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![kx_group::X25519],
        signature_verification_algorithms: SIGNATURES,
        secure_random: &Ours,
        key_provider: &Ours,
    }
}

/// Where random bytes and keys come from.
#[derive(Debug)]
struct Ours;

impl SecureRandom for Ours {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        fill_random(bytes).map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for Ours {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        match key {
            PrivateKeyDer::Pkcs8(key) => any_eddsa_type(&key),
            _ => Err(Error::General("a private key that is not in PKCS #8".into())),
        }
    }
}
