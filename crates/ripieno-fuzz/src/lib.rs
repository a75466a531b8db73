//! Fuzzing of readers of untrusted bytes, for the tests of the other crates only.
//!
//! A [`Fuzz`] takes valid bytes and the files of a corpus, mutates them at random, and passes them to a reader. The
//! reader returns an outcome, for example an error without its numbers. An input with a new outcome is mutated further,
//! so readers are explored in depth on a stable compiler without instrumentation. An input ends the test if the
//! reader panics or exceeds its memory limit. It is written to a file that the next run reads. The seed of an input is
//! its number, so every run is reproducible.
//!
//! Environment: `RIPIENO_FUZZ_INPUTS` is the number of inputs per reader, and `RIPIENO_FUZZ_FIRST` the number of the
//! first input. With `RIPIENO_FUZZ_KEEP=1` the first input of every outcome is added to the corpus.
//! Cost: some 100 ns per input, in addition to its reader.

mod counting;
mod mutation;
mod random;
mod watch;

pub use counting::FuzzAllocator;
pub use random::FuzzRandom;

use mutation::mutated;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use watch::ReaderWatch;

/// Default number of inputs per reader in the tests.
const DEFAULT_INPUT_COUNT: u64 = 20_000;
/// Largest number of inputs with new outcomes that are kept for further mutation.
const POOL_GROWTH_INPUT_COUNT_MAX: usize = 512;
/// Largest growth of a mutated input over the longest valid one.
const GROWTH_BYTES: usize = 256;

/// Corpus file for an input that a reader does not finish.
const STUCK_FILE_NAME: &str = "stuck";

/// Configuration of a fuzz test for one reader.
pub struct Fuzz {
    name: &'static str,
    corpus: PathBuf,
    valid: Vec<Vec<u8>>,
    allowed_bytes: fn(usize) -> usize,
    share: u64,
}

impl Fuzz {
    /// Create the test of a reader. `manifest` is the folder of its crate: `env!("CARGO_MANIFEST_DIR")`.
    ///
    /// The reader may use 4 KiB plus 64 bytes per input byte, unless [`allowing`](Fuzz::allowing) sets another limit.
    pub fn new(name: &'static str, manifest: &str, valid: impl IntoIterator<Item = Vec<u8>>) -> Fuzz {
        let corpus = [manifest, "tests", "corpus", name].iter().collect();
        Fuzz { name, corpus, valid: valid.into_iter().collect(), allowed_bytes: |bytes| 4096 + 64 * bytes, share: 1 }
    }

    /// Set the memory limit as a function of the input length.
    pub fn allowing(self, allowed_bytes: fn(usize) -> usize) -> Fuzz {
        Fuzz { allowed_bytes, ..self }
    }

    /// Use only one in `share` inputs, for a slow reader.
    pub fn one_of(self, share: u64) -> Fuzz {
        Fuzz { share, ..self }
    }

    /// Pass the corpus, the valid bytes, and the requested number of mutated inputs to `reader`.
    pub fn run<Outcome: Hash>(self, mut reader: impl FnMut(&[u8]) -> Outcome) {
        let mut pool = self.corpus();
        pool.extend(self.valid.iter().cloned());
        assert!(!self.valid.is_empty(), "{}: expected at least one valid input", self.name);
        let longest = pool.iter().map(Vec::len).max().unwrap_or(0) + GROWTH_BYTES;
        let (mut outcomes, mut max_bytes) = (BTreeSet::new(), 0);
        let watch = ReaderWatch::begin(self.corpus.join(STUCK_FILE_NAME));
        let mut reader = |input: &[u8]| {
            watch.note(input);
            reader(input)
        };
        for (number, input) in pool.iter().enumerate() {
            outcomes.insert(self.outcome(&format!("{number} of the pool"), input, &mut reader, &mut max_bytes));
        }

        let begin = variable("RIPIENO_FUZZ_FIRST").unwrap_or(0);
        let count = variable("RIPIENO_FUZZ_INPUTS").unwrap_or(DEFAULT_INPUT_COUNT).div_ceil(self.share);
        let pool_limit = pool.len() + POOL_GROWTH_INPUT_COUNT_MAX;
        for number in begin..begin + count {
            let input = mutated(&pool, longest, &mut FuzzRandom::new(number));
            let outcome = self.outcome(&number.to_string(), &input, &mut reader, &mut max_bytes);
            if outcomes.insert(outcome) && pool.len() < pool_limit {
                self.keep(outcome, &input);
                pool.push(input);
            }
        }
        let (name, outcome_count, input_count) = (self.name, outcomes.len(), count + pool.len() as u64);
        println!("{name}: {input_count} inputs, {outcome_count} outcomes, {max_bytes} bytes of memory at most");
    }

    fn outcome<Outcome: Hash>(
        &self,
        number: &str,
        input: &[u8],
        reader: &mut impl FnMut(&[u8]) -> Outcome,
        max_bytes: &mut usize,
    ) -> u64 {
        counting::reset();
        let outcome = catch_unwind(AssertUnwindSafe(|| reader(input)));
        let used_bytes = counting::peak_bytes();
        *max_bytes = used_bytes.max(*max_bytes);
        let reported = |problem: &str| {
            let file = self.write("found", input);
            format!("{}, input {number}, {problem}; saved as {file}", self.name)
        };
        let outcome = outcome.unwrap_or_else(|panic| {
            eprintln!("{}", reported("made the reader panic"));
            resume_unwind(panic)
        });
        let allowed = (self.allowed_bytes)(input.len());
        assert!(
            used_bytes <= allowed,
            "{}",
            reported(&format!("used {used_bytes} bytes of memory: expected at most {allowed}"))
        );
        let mut hasher = DefaultHasher::new();
        outcome.hash(&mut hasher);
        hasher.finish()
    }

    /// Read the files of the corpus in the order of their names.
    fn corpus(&self) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(&self.corpus).map(|entries| entries.map(|entry| entry.unwrap().path()));
        let mut paths: Vec<PathBuf> = entries.map(Iterator::collect).unwrap_or_default();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    fn keep(&self, outcome: u64, input: &[u8]) {
        if variable("RIPIENO_FUZZ_KEEP") == Some(1) {
            self.write(&format!("{outcome:016x}"), input);
        }
    }

    fn write(&self, name: &str, input: &[u8]) -> String {
        let path = self.corpus.join(name);
        let written = fs::create_dir_all(&self.corpus).and_then(|()| fs::write(&path, input));
        written.map_or_else(|error| format!("no file ({error}): {input:?}"), |()| path.display().to_string())
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a whole number")))
}
