//! A control connection: messages in, messages out, never blocking.

use crate::stream::{Stream, is_not_now};
use ripieno_run::membership::{MembershipMessage, MessageInbox};
use std::io::{self, Read, Write};

/// A peer that reads nothing while so much waits for it is as good as dead.
const OUTBOX_BYTES_MAX: usize = 4 << 20;

const READ_BYTES: usize = 16 << 10;

/// What is said of a connection that the peer's system has closed.
pub(super) const ENDED: &str = "its process ended";

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    pub stream: Stream,
    /// Whether the monitor listens for room to send.
    pub awaits_room: bool,
    inbox: MessageInbox,
    outbox: Vec<u8>,
}

impl ControlConnection {
    /// A wire over a non-blocking stream.
    pub fn new(stream: Stream) -> ControlConnection {
        ControlConnection { stream, awaits_room: false, inbox: MessageInbox::default(), outbox: Vec::new() }
    }

    /// The messages that have arrived, and, if the connection is gone, why.
    pub fn read(&mut self) -> (Vec<MembershipMessage>, Option<String>) {
        let mut bytes = [0; READ_BYTES];
        let mut messages = Vec::new();
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return (messages, Some(ENDED.to_string())),
                Ok(count) => self.inbox.push(&bytes[..count]),
                Err(error) if is_not_now(&error) => return (messages, None),
                Err(error) => return (messages, Some(why_gone(&error))),
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

    /// Takes a message to send.
    pub fn queue(&mut self, message: &MembershipMessage) {
        self.outbox.extend(message.encode());
    }

    /// Sends what there is room for; an error is why the connection is gone.
    pub fn flush(&mut self) -> Result<(), String> {
        let mut sent = 0;
        let result = loop {
            if sent == self.outbox.len() {
                break Ok(());
            }
            match self.stream.write(&self.outbox[sent..]) {
                Ok(count) => sent += count,
                Err(error) if is_not_now(&error) => break Ok(()),
                // What the peer said before it went is still to be read: the end of that tells of its death.
                Err(error) => break Err(why_gone(&error)),
            }
        };
        self.outbox.drain(..sent);
        if self.outbox.len() > OUTBOX_BYTES_MAX {
            return Err("it reads nothing".to_string());
        }
        result
    }

    /// Whether something waits to be sent.
    pub fn is_full(&self) -> bool {
        !self.outbox.is_empty()
    }
}

/// A process that is killed with bytes unread resets its connections instead of closing them.
fn why_gone(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ENDED.to_string(),
        _ => format!("its connection broke: {error}"),
    }
}
