//! A link between two simulated processes: over memory, which tells of no death, or over a cable.

use crate::cables::{Freight, Way};
use crate::stage::Stage;
use ripieno_run::{Link, LinkError};
use std::sync::Arc;

pub struct SimulatedLink {
    pub stage: Arc<Stage>,
    /// From this rank to the peer.
    pub way: Way,
    pub is_memory: bool,
    pub seen: Vec<u8>,
}

pub fn closed(cause: impl Into<String>) -> LinkError {
    LinkError::Closed { cause: cause.into() }
}

impl Link for SimulatedLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        let mut world = self.stage.lock();
        if !self.is_memory && world.ways[&self.way.back()].has_ended {
            return Err(closed("the peer closed the connection"));
        }
        let room = world.scene.link_bytes - world.ways[&self.way].unread_bytes;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter()).take(room).copied().collect();
        let cable = world.ways.get_mut(&self.way).expect("the link is open");
        cable.unread_bytes += bytes.len();
        let sent = bytes.len();
        if sent > 0 {
            world.ship(self.way, Freight::Bytes(bytes));
        }
        Ok(sent)
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        let pause_us = {
            let mut world = self.stage.lock();
            if world.dice.chance(10) { world.dice.below(3000) } else { 0 }
        };
        if pause_us > 0 {
            // Others have the core.
            self.stage.sleep(self.way.from, pause_us);
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let count = self.peek(1)?.len().min(into.len());
        into[..count].copy_from_slice(&self.seen[..count]);
        self.consume(count);
        Ok(count)
    }

    fn peek(&mut self, least: usize) -> Result<&[u8], LinkError> {
        let world = self.stage.lock();
        let cable = &world.ways[&self.way.back()];
        if !self.is_memory && cable.has_ended && cable.arrived.len() < least {
            return Err(closed("the peer closed the connection"));
        }
        self.seen.clear();
        self.seen.extend(cable.arrived.iter());
        Ok(&self.seen)
    }

    fn consume(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let mut world = self.stage.lock();
        world.ways.get_mut(&self.way.back()).expect("the link is open").arrived.drain(..count);
        world.ship(self.way, Freight::Room(count));
    }

    fn expect(&mut self, _bytes: usize) {}

    fn is_memory(&self) -> bool {
        self.is_memory
    }
}
