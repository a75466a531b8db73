//! The agreement of survivors: connections between any two ranks, opened when one has something to say to the other.

use super::wire::{ENDED, Wire};
use super::{Monitor, Order, Outcome, Source};
use crate::auth::Purpose;
use crate::connector::Unreached;
use crate::stream::Stream;
use ripieno_run::membership::Message;
use ripieno_run::membership::agreement::{Event, Output, Word};
use rustix::event::epoll;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The connections for the agreement. Both ends may have opened one at once: either will do.
#[derive(Default)]
pub(super) struct Kin {
    wires: BTreeMap<u32, (usize, Wire)>,
    next_number: u32,
    opening: BTreeSet<usize>,
}

impl Monitor {
    /// Hands an event to the agreement, and does what that wants.
    pub(super) fn agree(&mut self, event: Event) {
        if let Event::Ended { peer } | Event::Heard { peer, word: Word::Away { .. } } = event {
            self.setup.shared.update(|status| {
                status.ended.insert(peer);
            });
        }
        let outputs = self.setup.agreement.handle(self.setup.shared.now(), event);
        for output in outputs {
            let outcome = match output {
                Output::Tell { to, word } => {
                    self.tell_kin(to, word);
                    continue;
                }
                Output::Decided(decision) => Outcome::Decided(decision),
                Output::Excluded => Outcome::Excluded,
                Output::GaveUp(cause) => Outcome::GaveUp(cause),
            };
            // Whoever is left out is told before this rank's program can end the process.
            self.flush_kin();
            self.setup.shared.update(|status| status.outcome = Some(outcome));
        }
    }

    /// Queues a word; where no connection stands one is opened, and the machine says more when it is.
    fn tell_kin(&mut self, to: usize, word: Word) {
        if let Some((_, wire)) = self.kin.wires.values_mut().find(|(peer, _)| *peer == to) {
            return wire.queue(&Message::Agreement(word));
        }
        if !self.kin.opening.insert(to) {
            return;
        }
        let (shared, connector) = (self.setup.shared.clone(), self.setup.connector.clone());
        let (addresses, deadline) = (self.setup.addresses.clone(), Instant::now() + self.setup.still * 2);
        let open = move || {
            shared.order(match connector.reach(&addresses[to], Purpose::Agreement, deadline) {
                Ok(stream) => Order::Open { peer: to, stream },
                Err(why) => Order::NotOpen { peer: to, why },
            });
        };
        if std::thread::Builder::new().name("ripieno-open".to_string()).spawn(open).is_err() {
            // It is tried again on the next beat.
            self.kin.opening.remove(&to);
        }
    }

    /// Takes a connection that stands.
    pub(super) fn add_kin(&mut self, peer: usize, stream: Stream) {
        self.kin.opening.remove(&peer);
        let number = self.kin.next_number;
        let tag = Source::Kin(number).tag();
        if self.end.is_some()
            || stream.set_nonblocking(true).is_err()
            || epoll::add(&self.epoll, &stream, tag, epoll::EventFlags::IN).is_err()
        {
            return;
        }
        self.kin.next_number = number.wrapping_add(1);
        self.kin.wires.insert(number, (peer, Wire::new(stream)));
        self.agree(Event::Connected { peer });
    }

    /// Hears that there is no connection.
    pub(super) fn miss_kin(&mut self, peer: usize, why: Unreached) {
        self.kin.opening.remove(&peer);
        if why == Unreached::Ended {
            self.agree(Event::Ended { peer });
        }
    }

    pub(super) fn read_kin(&mut self, number: u32) {
        let Some((peer, wire)) = self.kin.wires.get_mut(&number) else { return };
        let (peer, (messages, closed)) = (*peer, wire.read());
        for message in messages {
            if let Message::Agreement(word) = message {
                self.agree(Event::Heard { peer, word });
            }
        }
        if let Some(cause) = closed {
            self.kin.wires.remove(&number);
            if cause == ENDED {
                self.agree(Event::Ended { peer });
            }
        }
    }

    /// Sends what there is room for.
    pub(super) fn flush_kin(&mut self) {
        let mut broken = Vec::new();
        for (&number, (_, wire)) in &mut self.kin.wires {
            if wire.flush().is_err() {
                broken.push(number);
            } else if wire.awaits_room != wire.is_full() {
                wire.awaits_room = wire.is_full();
                let room = if wire.is_full() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
                // The descriptor is in the set as long as the wire lives, so this cannot fail.
                let _ =
                    epoll::modify(&self.epoll, &wire.stream, Source::Kin(number).tag(), epoll::EventFlags::IN | room);
            }
        }
        // Its end is read like its last words.
        broken.into_iter().for_each(|number| self.read_kin(number));
    }

    /// Takes no more part: the others see that this rank has left.
    pub(super) fn leave_kin(&mut self) {
        self.kin.wires.clear();
    }
}
