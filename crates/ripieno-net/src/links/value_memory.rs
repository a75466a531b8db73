//! Limits the values that a process holds in memory: the least recently used values move to disk.
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
pub enum ValueMemoryLimit {
    /// A fixed number of bytes.
    Bytes(usize),
    /// Half of the memory that would be free without the values, up to `max_bytes`.
    HalfOfAvailable {
        /// In bytes.
        max_bytes: usize,
    },
}

/// Statistics of the value memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueMemoryStats {
    /// The current limit.
    pub limit_bytes: usize,
    /// Bytes currently in memory.
    pub in_memory_bytes: usize,
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
    in_memory_bytes: AtomicUsize,
    spilled_count: AtomicU64,
    spilled_bytes: AtomicU64,
}

#[derive(Debug)]
struct ValueMemoryState {
    limit: ValueMemoryLimit,
    directory: PathBuf,
    /// Completely written values, least recently used first.
    values: Vec<Weak<HostMemory>>,
    /// Bytes that are being written to disk.
    spilling_bytes: usize,
    failure: Option<String>,
}

/// The accounting entry of a value in memory.
#[derive(Debug)]
pub(super) struct CountedMemory {
    owner: Arc<Inner>,
    bytes: usize,
    is_in_memory: AtomicBool,
}

impl CountedMemory {
    /// Record that the bytes are no longer in memory.
    pub(super) fn leave(&self) {
        if self.is_in_memory.swap(false, Ordering::Relaxed) {
            self.owner.in_memory_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }

    fn is_in_memory(&self) -> bool {
        self.is_in_memory.load(Ordering::Relaxed)
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ValueMemory {
    /// Create value memory with the limit `limit`; values beyond it go to files in `directory`.
    pub fn new(limit: ValueMemoryLimit, directory: PathBuf) -> ValueMemory {
        let state = ValueMemoryState { limit, directory, values: Vec::new(), spilling_bytes: 0, failure: None };
        ValueMemory(Arc::new(Inner {
            state: Mutex::new(state),
            in_memory_bytes: AtomicUsize::new(0),
            spilled_count: AtomicU64::new(0),
            spilled_bytes: AtomicU64::new(0),
        }))
    }

    /// Change the limit and the directory.
    pub fn set_limit(&self, limit: ValueMemoryLimit, directory: PathBuf) {
        let mut state = self.0.state();
        (state.limit, state.directory) = (limit, directory);
    }

    /// Create a value of `length_bytes` zero bytes.
    ///
    /// If it exceeds the limit, other values start to move to disk. If values are moving already, or moving them frees
    /// too little, the new value starts on disk.
    pub fn allocate(&self, length_bytes: usize) -> io::Result<HostMemory> {
        let mut state = self.0.state();
        let in_memory_bytes = self.0.in_memory_bytes.load(Ordering::Relaxed);
        let limit_bytes = bytes_of(state.limit, in_memory_bytes);
        let excess_bytes = (in_memory_bytes + length_bytes).saturating_sub(limit_bytes);
        let chosen = if state.spilling_bytes > 0 { None } else { state.choose(excess_bytes) };
        let directory = state.directory.clone();
        let explained = |bytes, error| explain(length_bytes, limit_bytes, bytes, &directory, &error);
        let Some(chosen) = chosen.filter(|_| length_bytes <= limit_bytes) else {
            let file = allocate_file(&directory, length_bytes).map_err(|error| explained(length_bytes, error))?;
            self.0.note_spilled(length_bytes);
            return HostMemory::of_unnamed(file, length_bytes);
        };
        let mut spilling = Vec::new();
        for value in chosen {
            let file = allocate_file(&directory, value.len()).map_err(|error| explained(value.len(), error))?;
            spilling.push((value, file));
        }
        let mut memory = HostMemory::new(length_bytes)?;
        self.0.in_memory_bytes.fetch_add(length_bytes, Ordering::Relaxed);
        memory.count(CountedMemory { owner: self.0.clone(), bytes: length_bytes, is_in_memory: true.into() });
        if !spilling.is_empty() {
            state.spilling_bytes = spilling.iter().map(|(value, _)| value.len()).sum();
            let inner = self.0.clone();
            let thread = std::thread::Builder::new().name("ripieno-spill".to_string());
            thread.spawn(move || inner.spill(spilling)).inspect_err(|_| state.spilling_bytes = 0)?;
        }
        Ok(memory)
    }

    /// Record that a value is completely written, or is used again.
    pub fn note_use(&self, value: &Arc<HostMemory>) {
        if value.counted().is_some_and(CountedMemory::is_in_memory) {
            let mut state = self.0.state();
            state.values.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), &**value));
            state.values.push(Arc::downgrade(value));
        }
    }

    /// Return the statistics.
    pub fn stats(&self) -> ValueMemoryStats {
        let state = self.0.state();
        let in_memory_bytes = self.0.in_memory_bytes.load(Ordering::Relaxed);
        ValueMemoryStats {
            limit_bytes: bytes_of(state.limit, in_memory_bytes),
            in_memory_bytes,
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
    fn spill(&self, spilling: Vec<(Arc<HostMemory>, File)>) {
        let mut failure = None;
        for (value, file) in spilling {
            match value.move_to(&file) {
                Ok(()) => self.note_spilled(value.len()),
                Err(error) => failure = Some(format!("{} bytes stay in memory: {error}", value.len())),
            }
        }
        let mut state = self.state();
        state.spilling_bytes = 0;
        if failure.is_some() {
            state.failure = failure;
        }
    }
}

impl ValueMemoryState {
    /// Choose values of at least `bytes` bytes in total, least recently used first. Return `None` if all together are
    /// smaller.
    fn choose(&mut self, bytes: usize) -> Option<Vec<Arc<HostMemory>>> {
        let (mut chosen, mut chosen_bytes) = (Vec::new(), 0);
        for value in self.values.iter().filter_map(Weak::upgrade) {
            if chosen_bytes >= bytes {
                break;
            }
            if value.counted().is_some_and(CountedMemory::is_in_memory) {
                chosen_bytes += value.len();
                chosen.push(value);
            }
        }
        (chosen_bytes >= bytes).then_some(chosen)
    }
}

fn bytes_of(limit: ValueMemoryLimit, in_memory_bytes: usize) -> usize {
    match limit {
        ValueMemoryLimit::Bytes(bytes) => bytes,
        ValueMemoryLimit::HalfOfAvailable { max_bytes } => {
            free_bytes().map_or(max_bytes, |free| ((free + in_memory_bytes) / 2).min(max_bytes))
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
fn allocate_file(directory: &Path, bytes: usize) -> io::Result<File> {
    let file = tempfile::tempfile_in(directory)?;
    super::host_memory::reserve(&file, 0, bytes)?;
    Ok(file)
}

fn explain(length_bytes: usize, limit_bytes: usize, bytes: usize, directory: &Path, error: &io::Error) -> io::Error {
    let text = format!(
        "values of broadcasts may take {limit_bytes} bytes of memory here, and {bytes} bytes cannot go to {}: {error}; \
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
        ValueMemory::new(ValueMemoryLimit::Bytes(values * VALUE_BYTES), std::env::temp_dir())
    }

    fn value(memory: &ValueMemory, byte: u8) -> Arc<HostMemory> {
        let mut value = memory.allocate(VALUE_BYTES).unwrap();
        value.fill(byte);
        let value = Arc::new(value);
        memory.note_use(&value);
        value
    }

    fn await_spilled(memory: &ValueMemory, count: u64) {
        let begun = Instant::now();
        while memory.stats().spilled_count < count || memory.0.state().spilling_bytes > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", memory.stats());
            std::thread::yield_now();
        }
    }

    fn is_in_memory(value: &HostMemory) -> bool {
        value.counted().is_some_and(CountedMemory::is_in_memory)
    }

    #[test]
    fn the_least_recently_used_value_moves_to_disk_at_the_same_addresses() {
        let memory = memory_of(2);
        let (first, second) = (value(&memory, 1), value(&memory, 2));
        memory.note_use(&first);
        let (view, location) = (&second[..], second.location());
        let third = value(&memory, 3);
        await_spilled(&memory, 1);
        assert_eq!([&first, &second, &third].map(|it| is_in_memory(it)), [true, false, true]);
        assert_eq!((view.as_ptr(), view), (second.as_ptr(), &vec![2; VALUE_BYTES][..]));
        assert_ne!(second.location(), location, "other processes must map the file");
        assert_eq!(second.location().descriptor, location.descriptor);
        let stats = memory.stats();
        assert_eq!((stats.in_memory_bytes, stats.spilled_bytes), (2 * VALUE_BYTES, VALUE_BYTES as u64));
        drop((first, second, third));
        assert_eq!(memory.stats().in_memory_bytes, 0);
    }

    #[test]
    fn a_mapped_value_can_be_remapped_after_it_moved() {
        let memory = memory_of(1);
        let first = value(&memory, 1);
        let (early, view) = {
            let early = HostMemory::at(first.location(), VALUE_BYTES).unwrap();
            let view = early.as_ptr();
            (early, view)
        };
        let second = value(&memory, 2);
        await_spilled(&memory, 1);
        early.remap(first.location(), VALUE_BYTES).unwrap();
        let late = HostMemory::at(first.location(), VALUE_BYTES).unwrap();
        drop((first, second));
        assert_eq!((early.as_ptr(), &early[..], &late[..]), (view, &[1; VALUE_BYTES][..], &[1; VALUE_BYTES][..]));
        assert_eq!(early.location().inode, late.location().inode);
    }

    #[test]
    fn a_value_without_free_memory_starts_on_disk() {
        let memory = memory_of(2);
        let mut large = memory.allocate(3 * VALUE_BYTES).unwrap();
        large.fill(7);
        assert!(!is_in_memory(&large));
        let large = Arc::new(large);
        let read = HostMemory::at(large.location(), 3 * VALUE_BYTES).unwrap();
        assert!(read.iter().all(|&byte| byte == 7));
        // A value that is still being written cannot move.
        let unfinished = [memory.allocate(VALUE_BYTES).unwrap(), memory.allocate(VALUE_BYTES).unwrap()];
        assert!(!is_in_memory(&memory.allocate(VALUE_BYTES).unwrap()) && unfinished.iter().all(is_in_memory));
        assert_eq!(memory.stats().spilled_count, 2);
    }

    #[test]
    fn a_directory_without_space_is_named_with_a_remedy() {
        let nowhere = std::env::temp_dir().join("ripieno-no-such-folder");
        let memory = ValueMemory::new(ValueMemoryLimit::Bytes(10), nowhere.clone());
        let error = memory.allocate(11).unwrap_err().to_string();
        for word in ["may take 10 bytes", "11 bytes cannot go to", &*nowhere.to_string_lossy(), "make room there"] {
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(memory.stats().in_memory_bytes, 0);
        assert!(is_in_memory(&memory.allocate(10).unwrap()));
    }

    #[test]
    fn the_default_limit_is_half_of_the_available_memory() {
        let memory =
            ValueMemory::new(ValueMemoryLimit::HalfOfAvailable { max_bytes: usize::MAX }, std::env::temp_dir());
        let limit_bytes = memory.stats().limit_bytes;
        assert!(limit_bytes > 0 && limit_bytes < usize::MAX);
        assert!(limit_bytes >= free_bytes().unwrap() / 4, "half, while other processes allocate and free memory");
        memory.set_limit(ValueMemoryLimit::HalfOfAvailable { max_bytes: 7 }, std::env::temp_dir());
        assert_eq!(memory.stats().limit_bytes, 7);
    }
}
