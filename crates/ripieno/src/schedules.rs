//! The schedules a communicator has made, by what was asked for: a collective that repeats is planned once.

use crate::task::Part;
use ripieno_plan::Order;
use ripieno_run::{Call, Schedule};
use std::collections::HashMap;
use std::sync::Arc;

/// More schedules than this are not kept: the oldest give way together.
const KEPT_COUNT: usize = 512;

/// Schedules by call, order and, where ranks contribute unequal parts, by the parts.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    by_call: HashMap<Key, Arc<Schedule>>,
    latest: Option<(Key, Arc<Schedule>)>,
    /// What is looked for, kept for its memory.
    wanted: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    call: Call,
    order: Order,
    parts: Vec<usize>,
}

impl Schedules {
    /// The schedule for `call` in this `order` with these `parts`, made by `make` if it is new.
    pub fn get<E>(
        &mut self,
        call: Call,
        order: Order,
        parts: [Part<'_>; 2],
        make: impl FnOnce() -> Result<Schedule, E>,
    ) -> Result<Arc<Schedule>, E> {
        if let Some((key, schedule)) = &self.latest
            && key.call == call
            && key.order == order
            && key.holds(&parts)
        {
            return Ok(schedule.clone());
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        wanted.extend(parts.iter().flat_map(Part::numbers));
        let key = Key { call, order, parts: wanted };
        let schedule = match self.by_call.get(&key) {
            Some(schedule) => schedule.clone(),
            None => {
                let schedule = Arc::new(make()?);
                if self.by_call.len() >= KEPT_COUNT {
                    self.by_call.clear();
                }
                self.by_call.insert(key.clone(), schedule.clone());
                schedule
            }
        };
        if let Some((previous, _)) = self.latest.replace((key, schedule.clone())) {
            self.wanted = previous.parts;
        }
        Ok(schedule)
    }
}

impl Key {
    fn holds(&self, parts: &[Part<'_>; 2]) -> bool {
        match parts {
            // Not a comparison of slices: on nothing it may end in a memcmp at an address without a page, which costs some
            // processors 200 ns.
            [Part::None, Part::None] => self.parts.is_empty(),
            _ => parts.iter().flat_map(Part::numbers).eq(self.parts.iter().copied()),
        }
    }
}
