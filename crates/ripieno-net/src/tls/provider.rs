//! Cryptography provider of sessions: one cipher suite, one key exchange, one signature scheme.
//!
//! The default provider of `rustls` links all algorithms of `ring`, with the tables of its curves. This provider keeps
//! the library small.

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

/// Return the provider that both ends of a session use.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![kx_group::X25519],
        signature_verification_algorithms: SIGNATURES,
        secure_random: &SystemRandom,
        key_provider: &SystemRandom,
    }
}

/// Source of random bytes and keys.
#[derive(Debug)]
struct SystemRandom;

impl SecureRandom for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        fill_random(bytes).map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for SystemRandom {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        match key {
            PrivateKeyDer::Pkcs8(key) => any_eddsa_type(&key),
            _ => Err(Error::General("a private key that is not in PKCS #8".into())),
        }
    }
}
