//! The store's state for one rank: receives the string of the rank and sends messages to it, without blocking.

use super::message::{STRING_BYTES_MAX, StoreMessage, decode};
use crate::stream::{Stream, is_would_block};
use std::io::{self, Read, Write};

const ENDED: &str = "its process ended while the ranks connected";

/// A rank that is connected to the store.
pub struct StoreMember {
    pub stream: Stream,
    pub host: String,
    /// The rank's string, once it has arrived completely.
    pub text: Option<String>,
    inbox: Vec<u8>,
    pub outbox: Vec<u8>,
    pub has_left: bool,
}

impl StoreMember {
    /// A rank on an authenticated, non-blocking connection.
    pub fn new(stream: Stream) -> StoreMember {
        StoreMember { stream, host: String::new(), text: None, inbox: vec![], outbox: vec![], has_left: false }
    }

    /// Read the available bytes. An error is the reason why the connection ended.
    pub fn read(&mut self) -> Result<(), String> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ENDED.to_string()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ENDED.to_string()),
                Ok(count) => self.inbox.extend(&bytes[..count]),
                Err(error) if is_would_block(&error) => break,
                Err(error) => return Err(format!("its connection broke while the ranks connected: {error}")),
            }
            if self.text.is_some() || self.inbox.len() > 2 * STRING_BYTES_MAX {
                return Err("it sent more than one message while the ranks connected".to_string());
            }
        }
        // JSON may encode a byte in up to six bytes.
        if let Some(StoreMessage::Mine { host, text }) = decode(&self.inbox, 2 * STRING_BYTES_MAX)? {
            (self.host, self.text) = (host, Some(text));
            self.inbox.clear();
        }
        Ok(())
    }

    /// Send as much as the socket accepts. An error is the reason why the connection ended.
    pub fn send(&mut self) -> Result<(), String> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if is_would_block(&error) => break,
                Err(error) => return Err(format!("its connection broke while the ranks connected: {error}")),
            }
        }
        Ok(())
    }
}
