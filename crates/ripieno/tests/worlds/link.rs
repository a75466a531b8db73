//! A link between two simulated processes: shared memory, which reports no death of the peer, or a network connection.

use crate::connections::{Direction, Payload};
use crate::scheduler::WorldScheduler;
use ripieno_run::{Link, LinkError};
use std::sync::Arc;

pub struct SimulatedLink {
    pub scheduler: Arc<WorldScheduler>,
    /// The direction from this rank to the peer.
    pub direction: Direction,
    pub is_memory: bool,
    /// Bytes that the last `peek` returned.
    pub peeked: Vec<u8>,
}

pub fn closed(cause: impl Into<String>) -> LinkError {
    LinkError::Closed { cause: cause.into() }
}

impl Link for SimulatedLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        let mut world = self.scheduler.lock();
        if !self.is_memory && world.connections[&self.direction.back()].has_ended {
            return Err(closed("the peer closed the connection"));
        }
        let free_bytes = world.scenario.link_bytes - world.connections[&self.direction].unread_bytes;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter()).take(free_bytes).copied().collect();
        let connection = world.connections.get_mut(&self.direction).expect("the link is open");
        connection.unread_bytes += bytes.len();
        let sent = bytes.len();
        if sent > 0 {
            world.send_payload(self.direction, Payload::Bytes(bytes));
        }
        Ok(sent)
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        let pause_us = {
            let mut world = self.scheduler.lock();
            if world.random.chance(10) { world.random.below(3000) } else { 0 }
        };
        if pause_us > 0 {
            // Other ranks use the core.
            self.scheduler.sleep(self.direction.from, pause_us);
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let count = self.peek(1)?.len().min(into.len());
        into[..count].copy_from_slice(&self.peeked[..count]);
        self.consume(count);
        Ok(count)
    }

    fn peek(&mut self, min_bytes: usize) -> Result<&[u8], LinkError> {
        let world = self.scheduler.lock();
        let connection = &world.connections[&self.direction.back()];
        if !self.is_memory && connection.has_ended && connection.arrived.len() < min_bytes {
            return Err(closed("the peer closed the connection"));
        }
        self.peeked.clear();
        self.peeked.extend(connection.arrived.iter());
        Ok(&self.peeked)
    }

    fn consume(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let mut world = self.scheduler.lock();
        world.connections.get_mut(&self.direction.back()).expect("the link is open").arrived.drain(..count);
        world.send_payload(self.direction, Payload::Writable(count));
    }

    fn send_message(&mut self, parts: &[&[u8]; 2]) -> bool {
        let length_bytes = parts[0].len() + parts[1].len();
        let fits = {
            let world = self.scheduler.lock();
            world.scenario.link_bytes - world.connections[&self.direction].unread_bytes >= length_bytes
        };
        let is_sent = self.is_memory && fits && self.send(parts).is_ok();
        is_sent && self.flush().is_ok()
    }

    fn message(&mut self, length_bytes: usize, _poll_count: u32) -> Option<&[u8]> {
        let has_arrived = self.is_memory && self.peek(length_bytes).ok()?.len() >= length_bytes;
        has_arrived.then(|| &self.peeked[..length_bytes])
    }

    fn end_message(&mut self, length_bytes: usize) {
        self.consume(length_bytes);
        let _ = self.flush();
    }

    fn expect(&mut self, _bytes: usize) {}

    fn is_memory(&self) -> bool {
        self.is_memory
    }
}
