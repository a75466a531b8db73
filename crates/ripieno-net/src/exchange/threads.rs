//! An exchange between threads of one process.

use super::Exchange;
use crate::error::NetError;
use crate::monitor::lock;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// One thread's part in an exchange.
pub struct ThreadExchange {
    rank: usize,
    timeout: Duration,
    table: Arc<ExchangeTable>,
}

#[derive(Default)]
struct ExchangeTable {
    state: Mutex<ExchangeState>,
    changed: Condvar,
}

#[derive(Default)]
struct ExchangeState {
    strings: Vec<Option<String>>,
    /// A rank that ended without passing its string.
    ended: Option<usize>,
}

impl ThreadExchange {
    /// Create the parts of `world_size` threads, ordered by rank. No thread waits longer than `timeout`.
    pub fn group(world_size: usize, timeout: Duration) -> Vec<ThreadExchange> {
        let table = Arc::new(ExchangeTable::default());
        lock(&table.state).strings = vec![None; world_size];
        (0..world_size).map(|rank| ThreadExchange { rank, timeout, table: table.clone() }).collect()
    }
}

impl Exchange for ThreadExchange {
    fn exchange(&mut self, mine: &str) -> Result<Vec<String>, NetError> {
        let started = Instant::now();
        let mut state = lock(&self.table.state);
        state.strings[self.rank] = Some(mine.to_string());
        self.table.changed.notify_all();
        let waiting = |state: &mut ExchangeState| state.ended.is_none() && state.strings.iter().any(Option::is_none);
        let waited = self.table.changed.wait_timeout_while(state, self.timeout, waiting);
        let state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        if let Some(strings) = state.strings.iter().cloned().collect() {
            return Ok(strings);
        }
        let elapsed_ms = started.elapsed().as_millis() as u64;
        if let Some(ended) = state.ended {
            let cause = format!("rank {ended}'s thread ended before it passed its address");
            return Err(NetError::Exchange { rank: self.rank, cause, elapsed_ms });
        }
        let missing = (0..state.strings.len()).filter(|&rank| state.strings[rank].is_none()).collect();
        Err(NetError::Missing { rank: self.rank, missing, cause: "their threads did not take part".into(), elapsed_ms })
    }
}

impl Drop for ThreadExchange {
    fn drop(&mut self) {
        let mut state = lock(&self.table.state);
        if state.strings[self.rank].is_none() {
            state.ended.get_or_insert(self.rank);
            self.table.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_gets_all_strings_in_rank_order() {
        let group = ThreadExchange::group(4, Duration::from_secs(10));
        let threads = group.into_iter().enumerate();
        let threads = threads.map(|(rank, mut part)| std::thread::spawn(move || part.exchange(&format!("r{rank}"))));
        for thread in threads.collect::<Vec<_>>() {
            assert_eq!(thread.join().unwrap().unwrap(), ["r0", "r1", "r2", "r3"]);
        }
    }

    #[test]
    fn a_thread_that_ends_early_ends_the_wait_of_the_others() {
        let mut group = ThreadExchange::group(2, Duration::from_secs(60));
        drop(group.pop());
        let error = group[0].exchange("a").unwrap_err().to_string();
        assert!(error.contains("rank 1"), "{error}");
    }

    #[test]
    fn the_wait_is_bounded_and_names_the_missing() {
        let mut group = ThreadExchange::group(3, Duration::from_millis(10));
        let error = group[1].exchange("b").unwrap_err();
        assert!(matches!(error, NetError::Missing { missing, .. } if missing == [0, 2]));
    }
}
