//! A bound on the values that a process holds in memory: the least recently used values move to disk.
//!
//! A value that moves is copied to an unnamed file, and the file is mapped at the same addresses, so views stay valid.
//! The kernel reclaims file pages when it needs memory. If no memory can be freed for a new value, the value starts in
//! such a file. Disk space is allocated in advance, and the files disappear with the process.

use super::host_memory::HostMemory;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The limit of memory for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A fixed number of bytes.
    Bytes(usize),
    /// Half of the memory that would be free without the values, up to `most_bytes`.
    HalfOfFree {
        /// In bytes.
        most_bytes: usize,
    },
}

/// Statistics of the value memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The current limit.
    pub bound_bytes: usize,
    /// Bytes currently in memory.
    pub held_bytes: usize,
    /// Number of values that moved to disk or started there since the process began.
    pub spilled_count: u64,
    /// Bytes of the values in `spilled_count`.
    pub spilled_bytes: u64,
    /// The directory of the files.
    pub directory: PathBuf,
    /// The reason why the last attempt to move a value to disk failed.
    pub failure: Option<String>,
}

/// The memory for values of one process.
#[derive(Clone, Debug)]
pub struct ValueMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<ValueMemoryState>,
    held_bytes: AtomicUsize,
    spilled_count: AtomicU64,
    spilled_bytes: AtomicU64,
}

#[derive(Debug)]
struct ValueMemoryState {
    bound: Bound,
    directory: PathBuf,
    /// Completely written values, least recently used first.
    values: Vec<Weak<HostMemory>>,
    /// Bytes that are being written to disk.
    leaving_bytes: usize,
    failure: Option<String>,
}

/// The accounting entry of a value in memory.
#[derive(Debug)]
pub(super) struct CountedMemory {
    by: Arc<Inner>,
    bytes: usize,
    is_held: AtomicBool,
}

impl CountedMemory {
    /// Record that the bytes are no longer in memory.
    pub(super) fn leave(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.by.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }

    fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ValueMemory {
    /// Create value memory with a limit of `bound`; values beyond it go to files in `directory`.
    pub fn new(bound: Bound, directory: PathBuf) -> ValueMemory {
        let state = ValueMemoryState { bound, directory, values: Vec::new(), leaving_bytes: 0, failure: None };
        ValueMemory(Arc::new(Inner {
            state: Mutex::new(state),
            held_bytes: AtomicUsize::new(0),
            spilled_count: AtomicU64::new(0),
            spilled_bytes: AtomicU64::new(0),
        }))
    }

    /// Change the limit and the directory.
    pub fn set_bound(&self, bound: Bound, directory: PathBuf) {
        let mut state = self.0.state();
        (state.bound, state.directory) = (bound, directory);
    }

    /// Create a value of `length_bytes` zero bytes.
    ///
    /// If it exceeds the limit, other values start to move to disk. If values are moving already, or moving them frees
    /// too little, the new value starts on disk.
    pub fn take(&self, length_bytes: usize) -> io::Result<HostMemory> {
        let mut state = self.0.state();
        let held_bytes = self.0.held_bytes.load(Ordering::Relaxed);
        let bound_bytes = bytes_of(state.bound, held_bytes);
        let excess_bytes = (held_bytes + length_bytes).saturating_sub(bound_bytes);
        let chosen = if state.leaving_bytes > 0 { None } else { state.choose(excess_bytes) };
        let directory = state.directory.clone();
        let told = |bytes, error| explain(length_bytes, bound_bytes, bytes, &directory, &error);
        let Some(chosen) = chosen.filter(|_| length_bytes <= bound_bytes) else {
            let file = room(&directory, length_bytes).map_err(|error| told(length_bytes, error))?;
            self.0.note_spilled(length_bytes);
            return HostMemory::of_unnamed(file, length_bytes);
        };
        let mut leaving = Vec::new();
        for value in chosen {
            let file = room(&directory, value.len()).map_err(|error| told(value.len(), error))?;
            leaving.push((value, file));
        }
        let mut memory = HostMemory::new(length_bytes)?;
        self.0.held_bytes.fetch_add(length_bytes, Ordering::Relaxed);
        memory.count(CountedMemory { by: self.0.clone(), bytes: length_bytes, is_held: true.into() });
        if !leaving.is_empty() {
            state.leaving_bytes = leaving.iter().map(|(value, _)| value.len()).sum();
            let inner = self.0.clone();
            let thread = std::thread::Builder::new().name("ripieno-spill".to_string());
            thread.spawn(move || inner.spill(leaving)).inspect_err(|_| state.leaving_bytes = 0)?;
        }
        Ok(memory)
    }

    /// Record that a value is completely written, or is used again.
    pub fn note_use(&self, value: &Arc<HostMemory>) {
        if value.counted().is_some_and(CountedMemory::is_held) {
            let mut state = self.0.state();
            state.values.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), &**value));
            state.values.push(Arc::downgrade(value));
        }
    }

    /// Return the statistics.
    pub fn tally(&self) -> Tally {
        let state = self.0.state();
        let held_bytes = self.0.held_bytes.load(Ordering::Relaxed);
        Tally {
            bound_bytes: bytes_of(state.bound, held_bytes),
            held_bytes,
            spilled_count: self.0.spilled_count.load(Ordering::Relaxed),
            spilled_bytes: self.0.spilled_bytes.load(Ordering::Relaxed),
            directory: state.directory.clone(),
            failure: state.failure.clone(),
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, ValueMemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_spilled(&self, bytes: usize) {
        self.spilled_count.fetch_add(1, Ordering::Relaxed);
        self.spilled_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Write values to their files.
    fn spill(&self, leaving: Vec<(Arc<HostMemory>, File)>) {
        let mut failure = None;
        for (value, file) in leaving {
            match value.move_to(&file) {
                Ok(()) => self.note_spilled(value.len()),
                Err(error) => failure = Some(format!("{} bytes stay in memory: {error}", value.len())),
            }
        }
        let mut state = self.state();
        state.leaving_bytes = 0;
        if failure.is_some() {
            state.failure = failure;
        }
    }
}

impl ValueMemoryState {
    /// Choose values of at least `bytes` bytes in total, least recently used first. Return `None` if all are smaller.
    fn choose(&mut self, bytes: usize) -> Option<Vec<Arc<HostMemory>>> {
        let (mut chosen, mut chosen_bytes) = (Vec::new(), 0);
        for value in self.values.iter().filter_map(Weak::upgrade) {
            if chosen_bytes >= bytes {
                break;
            }
            if value.counted().is_some_and(CountedMemory::is_held) {
                chosen_bytes += value.len();
                chosen.push(value);
            }
        }
        (chosen_bytes >= bytes).then_some(chosen)
    }
}

fn bytes_of(bound: Bound, held_bytes: usize) -> usize {
    match bound {
        Bound::Bytes(bytes) => bytes,
        Bound::HalfOfFree { most_bytes } => {
            free_bytes().map_or(most_bytes, |free| ((free + held_bytes) / 2).min(most_bytes))
        }
    }
}

/// Return the memory available to new programs without swapping; `None` if the system does not report it.
fn free_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? << 10)
}

/// Create an unnamed file with `bytes` bytes of allocated disk space.
fn room(directory: &Path, bytes: usize) -> io::Result<File> {
    let file = tempfile::tempfile_in(directory)?;
    super::host_memory::reserve(&file, 0, bytes)?;
    Ok(file)
}

fn explain(length_bytes: usize, bound_bytes: usize, bytes: usize, directory: &Path, error: &io::Error) -> io::Error {
    let text = format!(
        "values of broadcasts may take {bound_bytes} bytes of memory here, and {bytes} bytes cannot go to {}: {error}; \
         make room there for {length_bytes} bytes more, choose another folder by TMPDIR, or allow more by \
         RIPIENO_BROADCAST_MEMORY",
        directory.display()
    );
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripieno_run::swarm::Store;
    use std::time::{Duration, Instant};

    const VALUE_BYTES: usize = 1 << 20;

    fn memory_of(values: usize) -> ValueMemory {
        ValueMemory::new(Bound::Bytes(values * VALUE_BYTES), std::env::temp_dir())
    }

    fn value(memory: &ValueMemory, byte: u8) -> Arc<HostMemory> {
        let mut value = memory.take(VALUE_BYTES).unwrap();
        value.fill(byte);
        let value = Arc::new(value);
        memory.note_use(&value);
        value
    }

    fn await_spilled(memory: &ValueMemory, count: u64) {
        let begun = Instant::now();
        while memory.tally().spilled_count < count || memory.0.state().leaving_bytes > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", memory.tally());
            std::thread::yield_now();
        }
    }

    fn is_in_memory(value: &HostMemory) -> bool {
        value.counted().is_some_and(CountedMemory::is_held)
    }

    #[test]
    fn the_value_that_was_used_least_recently_goes_to_disk_and_stays_where_it_is_seen() {
        let memory = memory_of(2);
        let (first, second) = (value(&memory, 1), value(&memory, 2));
        memory.note_use(&first);
        let (view, place) = (&second[..], second.place());
        let third = value(&memory, 3);
        await_spilled(&memory, 1);
        assert_eq!([&first, &second, &third].map(|it| is_in_memory(it)), [true, false, true]);
        assert_eq!((view.as_ptr(), view), (second.as_ptr(), &vec![2; VALUE_BYTES][..]));
        assert_ne!(second.place(), place, "others are to map the file");
        assert_eq!(second.place().descriptor, place.descriptor);
        let tally = memory.tally();
        assert_eq!((tally.held_bytes, tally.spilled_bytes), (2 * VALUE_BYTES, VALUE_BYTES as u64));
        drop((first, second, third));
        assert_eq!(memory.tally().held_bytes, 0);
    }

    #[test]
    fn who_has_mapped_a_value_follows_it_to_disk() {
        let memory = memory_of(1);
        let first = value(&memory, 1);
        let (early, view) = {
            let early = HostMemory::at(first.place(), VALUE_BYTES).unwrap();
            let view = early.as_ptr();
            (early, view)
        };
        let second = value(&memory, 2);
        await_spilled(&memory, 1);
        early.follow(first.place(), VALUE_BYTES).unwrap();
        let late = HostMemory::at(first.place(), VALUE_BYTES).unwrap();
        drop((first, second));
        assert_eq!((early.as_ptr(), &early[..], &late[..]), (view, &[1; VALUE_BYTES][..], &[1; VALUE_BYTES][..]));
        assert_eq!(early.place().inode, late.place().inode);
    }

    #[test]
    fn a_value_for_which_no_room_can_be_made_lies_on_disk_from_the_begin() {
        let memory = memory_of(2);
        let mut large = memory.take(3 * VALUE_BYTES).unwrap();
        large.fill(7);
        assert!(!is_in_memory(&large));
        let large = Arc::new(large);
        let read = HostMemory::at(large.place(), 3 * VALUE_BYTES).unwrap();
        assert!(read.iter().all(|&byte| byte == 7));
        // A value that is still being written cannot move.
        let coming = [memory.take(VALUE_BYTES).unwrap(), memory.take(VALUE_BYTES).unwrap()];
        assert!(!is_in_memory(&memory.take(VALUE_BYTES).unwrap()) && coming.iter().all(is_in_memory));
        assert_eq!(memory.tally().spilled_count, 2);
    }

    #[test]
    fn a_directory_without_room_is_named_with_what_may_be_done() {
        let nowhere = std::env::temp_dir().join("ripieno-no-such-folder");
        let memory = ValueMemory::new(Bound::Bytes(10), nowhere.clone());
        let error = memory.take(11).unwrap_err().to_string();
        for word in ["may take 10 bytes", "11 bytes cannot go to", &*nowhere.to_string_lossy(), "make room there"] {
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(memory.tally().held_bytes, 0);
        assert!(is_in_memory(&memory.take(10).unwrap()));
    }

    #[test]
    fn half_of_what_is_free_may_be_held_if_nobody_says_otherwise() {
        let memory = ValueMemory::new(Bound::HalfOfFree { most_bytes: usize::MAX }, std::env::temp_dir());
        let bound_bytes = memory.tally().bound_bytes;
        assert!(bound_bytes > 0 && bound_bytes < usize::MAX);
        assert!(bound_bytes >= free_bytes().unwrap() / 4, "half, while others take and leave memory");
        memory.set_bound(Bound::HalfOfFree { most_bytes: 7 }, std::env::temp_dir());
        assert_eq!(memory.tally().bound_bytes, 7);
    }
}
