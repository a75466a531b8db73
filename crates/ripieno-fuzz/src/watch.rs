//! Watchdog that detects readers which do not finish an input.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest time of a reader for one input, with a margin for a busy machine.
const INPUT_TIMEOUT: Duration = Duration::from_secs(60);

/// Watchdog over the current input of a reader. It runs until it is dropped.
pub(crate) struct ReaderWatch {
    current: Arc<Mutex<(u64, Vec<u8>)>>,
    _until: Sender<()>,
}

impl ReaderWatch {
    /// Start the watchdog. If the reader does not finish an input, it is written to `file` and the process ends.
    pub fn begin(file: PathBuf) -> ReaderWatch {
        let current = Arc::new(Mutex::new((0, Vec::new())));
        let (until, ended) = channel::<()>();
        let watched = current.clone();
        std::thread::spawn(move || {
            let mut seen = u64::MAX;
            while ended.recv_timeout(INPUT_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                let (number, input) = &*watched.lock().unwrap();
                if *number == seen {
                    let _ = file.parent().map(std::fs::create_dir_all);
                    let written = std::fs::write(&file, input);
                    eprintln!("a reader does not finish {input:?}; saved as {}: {written:?}", file.display());
                    std::process::exit(1);
                }
                seen = *number;
            }
        });
        ReaderWatch { current, _until: until }
    }

    /// Record the input that the reader starts to process.
    pub fn note(&self, input: &[u8]) {
        let (number, current) = &mut *self.current.lock().unwrap();
        *number += 1;
        current.clear();
        current.extend_from_slice(input);
    }
}
