//! TLS 1.3 between ranks. Both ends present one raw public key (RFC 7250), derived from the job's token, and accept no
//! other key.
//!
//! The token is therefore the only secret to distribute, and nothing expires. The key proves that an end knows the
//! token. The authentication inside the session ([`crate::auth`]) proves the rank. Its proofs are bound to one session
//! by exported keying material (RFC 5705, RFC 8446 section 7.5).
//! Cost: one round trip and one signature per side for each connection, then 22 bytes for every 16 KiB.

mod provider;
mod records;
mod session;
mod tunnel;

pub(crate) use session::{BINDING_BYTES, TlsSession};
pub use tunnel::Tunnel;

use crate::auth::seal;
use crate::config::Token;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, ServerConnection, SignatureScheme,
};
use std::sync::Arc;

/// The only cipher suite, the fastest on CPUs with AES instructions. Nothing is negotiated.
pub const CIPHER: &str = "TLS13_AES_128_GCM_SHA256";

/// Prefix of an Ed25519 private key in PKCS #8 (RFC 8410, section 7); the 32 key bytes follow.
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Create the calling end of a session under `token`.
pub(super) fn calling(token: &Token) -> Result<Connection, Error> {
    let Identity { provider, key, job } = Identity::of(token)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(job)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    let name = ServerName::try_from("rank").expect("a valid host name");
    ClientConnection::new(Arc::new(config), name).map(Connection::Client)
}

/// Create the answering end of a session under `token`.
pub(super) fn answering(token: &Token) -> Result<Connection, Error> {
    let Identity { provider, key, job } = Identity::of(token)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(job)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    ServerConnection::new(Arc::new(config)).map(Connection::Server)
}

/// The key that an end presents and the key that it accepts.
struct Identity {
    provider: Arc<CryptoProvider>,
    key: Arc<CertifiedKey>,
    job: Arc<JobKey>,
}

impl Identity {
    fn of(token: &Token) -> Result<Identity, Error> {
        let provider = provider::provider();
        let private = [&PKCS8[..], &seal(token, "tls key", &[])].concat();
        let signer = provider.key_provider.load_private_key(PrivatePkcs8KeyDer::from(private).into())?;
        let public = signer.public_key().ok_or_else(|| Error::General("a key without a public one".into()))?.to_vec();
        let key = CertifiedKey::new(vec![CertificateDer::from(public.clone())], signer);
        let job = JobKey { public: public.into(), algorithms: provider.signature_verification_algorithms };
        Ok(Identity { provider: Arc::new(provider), key: Arc::new(key), job: Arc::new(job) })
    }
}

/// The only key that an end of the job may present.
#[derive(Debug)]
struct JobKey {
    public: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl JobKey {
    fn check_presented(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        let is_own_key = key.as_ref() == self.public.as_ref();
        if is_own_key { Ok(()) } else { Err(CertificateError::UnknownIssuer.into()) }
    }

    fn verify_signature(
        &self,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &self.public, signed, &self.algorithms)
    }
}

const ONLY_TLS13: Error = Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled);

impl ServerCertVerifier for JobKey {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check_presented(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(ONLY_TLS13)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for JobKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check_presented(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(ONLY_TLS13)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
