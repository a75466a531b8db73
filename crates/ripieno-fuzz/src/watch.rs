//! Whoever stays at an input for ever is found, too.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No reader takes so long for an input, on a machine however busy.
const LONGEST: Duration = Duration::from_secs(60);

/// What a reader is at. It is watched until this is dropped.
pub(crate) struct ReaderWatch {
    current: Arc<Mutex<(u64, Vec<u8>)>>,
    _until: Sender<()>,
}

impl ReaderWatch {
    /// The process ends when the reader stays at one input, which is written to `file`.
    pub fn begin(file: PathBuf) -> ReaderWatch {
        let current = Arc::new(Mutex::new((0, Vec::new())));
        let (until, ended) = channel::<()>();
        let watched = current.clone();
        std::thread::spawn(move || {
            let mut seen = u64::MAX;
            while ended.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
                let (number, input) = &*watched.lock().unwrap();
                if *number == seen {
                    let _ = file.parent().map(std::fs::create_dir_all);
                    let written = std::fs::write(&file, input);
                    eprintln!("a reader stays at {input:?}; it is in {}: {written:?}", file.display());
                    std::process::exit(1);
                }
                seen = *number;
            }
        });
        ReaderWatch { current, _until: until }
    }

    /// The reader is given this input.
    pub fn note(&self, input: &[u8]) {
        let (number, current) = &mut *self.current.lock().unwrap();
        *number += 1;
        current.clear();
        current.extend_from_slice(input);
    }
}
