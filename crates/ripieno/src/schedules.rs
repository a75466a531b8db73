//! The schedules a communicator has made, by what was asked for: a collective that repeats is planned once.

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
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    call: Call,
    order: Order,
    counts: Vec<usize>,
}

impl Schedules {
    /// The schedule for `call` in this `order` with these `counts`, made by `make` if it is new.
    pub fn get<E>(
        &mut self,
        call: Call,
        order: Order,
        counts: &[usize],
        make: impl FnOnce() -> Result<Schedule, E>,
    ) -> Result<Arc<Schedule>, E> {
        if let Some((key, schedule)) = &self.latest
            && key.call == call
            && key.order == order
            // Not `==`: on nothing it may end in a memcmp at an address without a page, which costs some processors 200 ns.
            && key.counts.iter().eq(counts)
        {
            return Ok(schedule.clone());
        }
        if self.by_call.len() >= KEPT_COUNT {
            self.by_call.clear();
        }
        let key = Key { call, order, counts: counts.to_vec() };
        let schedule = match self.by_call.get(&key) {
            Some(schedule) => schedule.clone(),
            None => Arc::new(make()?),
        };
        self.by_call.insert(key.clone(), schedule.clone());
        self.latest = Some((key, schedule.clone()));
        Ok(schedule)
    }
}
