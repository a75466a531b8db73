//! Fuzz tests of damaged store messages and peer addresses.

use super::message::{ExchangeVerdict, STRING_BYTES_MAX, StoreMessage, decode, encode};
use crate::Token;
use crate::auth::seal;
use crate::config::Config;
use crate::error::NetError;
use crate::listeners::Listeners;
use crate::peer_address::{PeerAddress, check_addresses, hex};
use ripieno_fuzz::Fuzz;
use ripieno_run::JobFailure;

#[test]
fn damaged_messages_are_read_or_rejected() {
    let failed = JobFailure::RankFailed { rank: 1, host: "b".into(), cause: "c".into(), traceback: "t".into() };
    let valid = [
        StoreMessage::Mine { host: "a".into(), text: "{\"rank\":0}".into() },
        StoreMessage::All(vec!["a".into(), "ä\"".into()]),
        StoreMessage::Verdict(ExchangeVerdict::Failed(failed)),
        StoreMessage::Verdict(ExchangeVerdict::Disagree { peer: 1, cause: "they differ".into() }),
        StoreMessage::Verdict(ExchangeVerdict::Missing { missing: vec![1, 2], cause: "late".into(), elapsed_ms: 7 }),
    ];
    Fuzz::new("letter", env!("CARGO_MANIFEST_DIR"), valid.iter().map(encode)).run(|bytes| {
        decode(bytes, STRING_BYTES_MAX).map_err(|error| error.len().min(30)).map(|message| match message? {
            StoreMessage::Mine { .. } => Some(0),
            StoreMessage::All(_) => Some(1),
            StoreMessage::Verdict(verdict) => Some(2 + verdict.error(0).to_string().len().min(1)),
        })
    });
}

#[test]
fn damaged_addresses_belong_to_the_job_or_are_refused_by_name() {
    let config = Config::new(0, 3, Token::from_secret("a"));
    let listeners = Listeners::open(&config).unwrap();
    let valid = PeerAddress::new(&config, &listeners).unwrap().encode().into_bytes();
    Fuzz::new("address", env!("CARGO_MANIFEST_DIR"), [valid]).run(|bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
        assert!(matches!(PeerAddress::read(&config, 0, text), Ok(_) | Err(NetError::Disagree { .. })));
        // Authenticated ranks of the job seal any content, so the damaged text is sealed as well.
        let Some((unsealed_text, _)) = text.split_once("\"proof\":") else { return 1 };
        let unsealed = format!("{unsealed_text}\"proof\":\"\"}}");
        let sealed = hex(&seal(&config.token, "peer address", &[unsealed.as_bytes()]));
        match PeerAddress::read(&config, 0, &format!("{unsealed_text}\"proof\":\"{sealed}\"}}")) {
            Ok(address) => {
                let _ = (address.job_nonce(), check_addresses(&config, &[address.clone(), address]));
                2
            }
            Err(NetError::Disagree { cause, .. }) => 3 + cause.len().min(40) as u64,
            Err(error) => panic!("{error}"),
        }
    });
}
