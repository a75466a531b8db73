//! A control connection: receives and sends messages without blocking.

use crate::stream::{Stream, is_would_block};
use ripieno_run::membership::{MembershipMessage, MessageInbox};
use std::io::{self, Read, Write};

/// Limit of queued bytes. A peer that leaves more unread is treated as dead.
const OUTBOX_BYTES_MAX: usize = 4 << 20;

const READ_BYTES: usize = 16 << 10;

/// Reported cause when the peer's operating system has closed the connection.
pub(super) const ENDED: &str = "its process ended";

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    pub stream: Stream,
    /// Whether the monitor watches the connection for writability.
    pub awaits_writable: bool,
    inbox: MessageInbox,
    outbox: Vec<u8>,
}

impl ControlConnection {
    /// Create a connection over a non-blocking stream.
    pub fn new(stream: Stream) -> ControlConnection {
        ControlConnection { stream, awaits_writable: false, inbox: MessageInbox::default(), outbox: Vec::new() }
    }

    /// Return the messages that have arrived, and the reason if the connection has ended.
    pub fn read(&mut self) -> (Vec<MembershipMessage>, Option<String>) {
        let mut bytes = [0; READ_BYTES];
        let mut messages = Vec::new();
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return (messages, Some(ENDED.to_string())),
                Ok(count) => self.inbox.push(&bytes[..count]),
                Err(error) if is_would_block(&error) => return (messages, None),
                Err(error) => return (messages, Some(disconnect_cause(&error))),
            }
            loop {
                match self.inbox.pop() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(error) => return (messages, Some(format!("it broke the protocol: {error}"))),
                }
            }
        }
    }

    /// Queue a message.
    pub fn queue(&mut self, message: &MembershipMessage) {
        self.outbox.extend(message.encode());
    }

    /// Send as much as the socket accepts. An error is the reason why the connection ended.
    pub fn flush(&mut self) -> Result<(), String> {
        let mut sent = 0;
        let result = loop {
            if sent == self.outbox.len() {
                break Ok(());
            }
            match self.stream.write(&self.outbox[sent..]) {
                Ok(count) => sent += count,
                Err(error) if is_would_block(&error) => break Ok(()),
                // Messages that the peer sent before its end are still unread; the read that follows reports its death.
                Err(error) => break Err(disconnect_cause(&error)),
            }
        };
        self.outbox.drain(..sent);
        if self.outbox.len() > OUTBOX_BYTES_MAX {
            return Err("it does not read its messages".to_string());
        }
        result
    }

    /// Return whether bytes are queued.
    pub fn has_queued(&self) -> bool {
        !self.outbox.is_empty()
    }
}

/// The kernel resets the connections of a process that is killed with unread bytes, instead of closing them.
fn disconnect_cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ENDED.to_string(),
        _ => format!("its connection broke: {error}"),
    }
}
