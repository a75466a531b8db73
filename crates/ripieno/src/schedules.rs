//! Cache of schedules by call: a repeated collective is planned once.

use crate::task::TaskExtent;
use ripieno_plan::Order;
use ripieno_run::{Call, Schedule};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of schedules; when it is exceeded, all older ones are dropped together.
const MAX_SCHEDULE_COUNT: usize = 512;

/// Schedules by call, by order and, if ranks contribute unequal amounts, by extents.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    by_call: HashMap<ScheduleKey, Arc<Schedule>>,
    latest: Option<(ScheduleKey, Arc<Schedule>)>,
    /// The extents of the current lookup, kept to reuse the memory.
    extents_buffer: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScheduleKey {
    call: Call,
    order: Order,
    extents: Vec<usize>,
}

impl Schedules {
    /// Return the schedule for `call` in this `order` with these `extents`, made by `make` if it is new.
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
            // Not a comparison of slices: for an empty slice, it may call memcmp at an address without a page, which
            // takes 200 ns on some processors.
            [TaskExtent::Whole, TaskExtent::Whole] => self.extents.is_empty(),
            _ => extents.iter().flat_map(TaskExtent::numbers).eq(self.extents.iter().copied()),
        }
    }
}
