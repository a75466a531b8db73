//! Messages between the store and the ranks: a length (u32, little endian), then JSON.

use crate::error::NetError;
use ripieno_run::JobFailure;
use serde::{Deserialize, Serialize};

const LENGTH_BYTES: usize = 4;
/// Limit of one rank's string in bytes.
pub const STRING_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Serialize, Deserialize)]
pub enum StoreMessage {
    /// The string of a rank and the host that the rank runs on.
    Mine { host: String, text: String },
    /// The strings of all ranks.
    All(Vec<String>),
    /// The reason why the exchange failed.
    Verdict(ExchangeVerdict),
}

/// The reason why the exchange failed, equal on all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ExchangeVerdict {
    Failed(JobFailure),
    Disagree { peer: usize, cause: String },
    Missing { missing: Vec<usize>, cause: String, elapsed_ms: u64 },
}

impl ExchangeVerdict {
    pub fn error(self, rank: usize) -> NetError {
        match self {
            ExchangeVerdict::Failed(failure) => NetError::Failed(failure),
            ExchangeVerdict::Disagree { peer, cause } => NetError::Disagree { rank, peer, cause },
            ExchangeVerdict::Missing { missing, cause, elapsed_ms } => {
                NetError::Missing { rank, missing, cause, elapsed_ms }
            }
        }
    }
}

pub fn encode(message: &StoreMessage) -> Vec<u8> {
    let body = serde_json::to_vec(message).expect("messages are plain data, which JSON always holds");
    [&(body.len() as u32).to_le_bytes(), &body[..]].concat()
}

/// Decode the first message in `bytes` once it is complete. `bytes_max` limits its length before memory is allocated.
pub fn decode(bytes: &[u8], bytes_max: usize) -> Result<Option<StoreMessage>, String> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > bytes_max {
        return Err(format!("a message of {length} bytes is longer than the {bytes_max} expected"));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    serde_json::from_slice(body).map(Some).map_err(|error| format!("a message that does not decode: {error}"))
}
