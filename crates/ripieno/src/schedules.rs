//! Cache of schedules, by call.

use crate::task::TaskExtent;
use ripieno_plan::Order;
use ripieno_run::{Call, Schedule};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of schedules. A schedule beyond it clears the cache.
const MAX_SCHEDULE_COUNT: usize = 512;

/// Schedules by call, order and extents. Extents are stored only if ranks may contribute unequal amounts.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    by_call: HashMap<ScheduleKey, Arc<Schedule>>,
    latest: Option<(ScheduleKey, Arc<Schedule>)>,
    /// Buffer for the extents of a lookup.
    extents_buffer: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScheduleKey {
    call: Call,
    order: Order,
    extents: Vec<usize>,
}

impl Schedules {
    /// Return the schedule for a call. If the cache has none, `make` creates it.
    pub fn get<E>(
        &mut self,
        call: Call,
        order: Order,
        extents: [TaskExtent<'_>; 2],
        make: impl FnOnce() -> Result<Schedule, E>,
    ) -> Result<Arc<Schedule>, E> {
        if let Some((key, schedule)) = &self.latest
            && key.call == call
            && key.order == order
            && key.has_extents(&extents)
        {
            return Ok(schedule.clone());
        }
        let mut extents_buffer = std::mem::take(&mut self.extents_buffer);
        extents_buffer.clear();
        extents_buffer.extend(extents.iter().flat_map(TaskExtent::numbers));
        let key = ScheduleKey { call, order, extents: extents_buffer };
        let schedule = match self.by_call.get(&key) {
            Some(schedule) => schedule.clone(),
            None => {
                let schedule = Arc::new(make()?);
                if self.by_call.len() >= MAX_SCHEDULE_COUNT {
                    self.by_call.clear();
                }
                self.by_call.insert(key.clone(), schedule.clone());
                schedule
            }
        };
        if let Some((previous, _)) = self.latest.replace((key, schedule.clone())) {
            self.extents_buffer = previous.extents;
        }
        Ok(schedule)
    }
}

impl ScheduleKey {
    fn has_extents(&self, extents: &[TaskExtent<'_>; 2]) -> bool {
        match extents {
            // A comparison of empty slices may call memcmp with an unmapped address, which takes 200 ns on some
            // processors.
            [TaskExtent::Whole, TaskExtent::Whole] => self.extents.is_empty(),
            _ => extents.iter().flat_map(TaskExtent::numbers).eq(self.extents.iter().copied()),
        }
    }
}
