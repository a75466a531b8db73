//! Damaged bytes for whatever reads bytes that others have written: for the tests of the other crates alone.
//!
//! A [`Fuzz`] takes valid bytes and the files of a corpus, damages them by chance, and gives them to a reader. What the
//! reader makes of them is its outcome, an error without its numbers, say: who has an outcome that is new is damaged
//! further. So readers are explored in depth on a stable compiler, which instruments nothing. An input at which the
//! reader panics, or takes more memory than it was allowed, ends the test, and is written where the next run finds it.
//! The seed of an input is its number, so a run says the same wherever it is repeated.
//!
//! `RIPIENO_FUZZ_INPUTS` says how many inputs each reader gets, `RIPIENO_FUZZ_FIRST` with which number to begin. With
//! `RIPIENO_FUZZ_KEEP=1` the first input of every outcome becomes a file of the corpus.
//! Cost: some 100 ns for each input, beside its reader.

mod counting;
mod damage;
mod random;
mod watch;

pub use counting::FuzzAllocator;
pub use random::FuzzRandom;

use damage::damaged;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use watch::ReaderWatch;

/// Inputs of each reader in the tests.
const USUAL_INPUTS: u64 = 20_000;
/// Inputs of new outcomes that are damaged further at most.
const KEPT_MAX: usize = 512;
/// How long a damaged input is at most, beside the longest valid one.
const GROWTH_BYTES: usize = 256;

/// The file of the corpus with an input at which a reader stays.
const STUCK: &str = "stuck";

/// How a reader is tried.
pub struct Fuzz {
    name: &'static str,
    corpus: PathBuf,
    valid: Vec<Vec<u8>>,
    allowed_bytes: fn(usize) -> usize,
    share: u64,
}

impl Fuzz {
    /// The reader of this name, of which `manifest` is the folder of its crate: `env!("CARGO_MANIFEST_DIR")`. It may
    /// take 4 KiB and 64 bytes for each of an input unless it is [allowed](Fuzz::allowing) more.
    pub fn new(name: &'static str, manifest: &str, valid: impl IntoIterator<Item = Vec<u8>>) -> Fuzz {
        let corpus = [manifest, "tests", "corpus", name].iter().collect();
        Fuzz { name, corpus, valid: valid.into_iter().collect(), allowed_bytes: |bytes| 4096 + 64 * bytes, share: 1 }
    }

    /// Of memory, as much as this function of an input's length says.
    pub fn allowing(self, allowed_bytes: fn(usize) -> usize) -> Fuzz {
        Fuzz { allowed_bytes, ..self }
    }

    /// Of the inputs one of `share` only: its reader is slow.
    pub fn one_of(self, share: u64) -> Fuzz {
        Fuzz { share, ..self }
    }

    /// Gives `reader` the corpus, the valid bytes, and as many damaged ones as were asked for.
    pub fn run<Outcome: Hash>(self, mut reader: impl FnMut(&[u8]) -> Outcome) {
        let mut pool = self.corpus();
        pool.extend(self.valid.iter().cloned());
        assert!(!self.valid.is_empty(), "{}: what is damaged is valid at first", self.name);
        let longest = pool.iter().map(Vec::len).max().unwrap_or(0) + GROWTH_BYTES;
        let (mut outcomes, mut most_bytes) = (BTreeSet::new(), 0);
        let watch = ReaderWatch::begin(self.corpus.join(STUCK));
        let mut reader = |input: &[u8]| {
            watch.note(input);
            reader(input)
        };
        for (number, input) in pool.iter().enumerate() {
            outcomes.insert(self.outcome(&format!("of the pool, {number}"), input, &mut reader, &mut most_bytes));
        }

        let begin = variable("RIPIENO_FUZZ_FIRST").unwrap_or(0);
        let count = variable("RIPIENO_FUZZ_INPUTS").unwrap_or(USUAL_INPUTS).div_ceil(self.share);
        let room = pool.len() + KEPT_MAX;
        for number in begin..begin + count {
            let input = damaged(&pool, longest, &mut FuzzRandom::new(number));
            let outcome = self.outcome(&number.to_string(), &input, &mut reader, &mut most_bytes);
            if outcomes.insert(outcome) && pool.len() < room {
                self.keep(outcome, &input);
                pool.push(input);
            }
        }
        let (name, kinds, inputs) = (self.name, outcomes.len(), count + pool.len() as u64);
        println!("{name}: {inputs} inputs, {kinds} outcomes, {most_bytes} bytes of memory at most");
    }

    fn outcome<Outcome: Hash>(
        &self,
        number: &str,
        input: &[u8],
        reader: &mut impl FnMut(&[u8]) -> Outcome,
        most_bytes: &mut usize,
    ) -> u64 {
        counting::begin();
        let outcome = catch_unwind(AssertUnwindSafe(|| reader(input)));
        let taken = counting::most_bytes();
        *most_bytes = taken.max(*most_bytes);
        let told = |what: &str| {
            let file = self.write("found", input);
            format!("{}, input {number}, {what}; it is in {file}", self.name)
        };
        let outcome = outcome.unwrap_or_else(|panic| {
            eprintln!("{}", told("made its reader panic"));
            resume_unwind(panic)
        });
        let allowed = (self.allowed_bytes)(input.len());
        assert!(taken <= allowed, "{}", told(&format!("took {taken} bytes of memory where {allowed} are allowed")));
        let mut hasher = DefaultHasher::new();
        outcome.hash(&mut hasher);
        hasher.finish()
    }

    /// The files of the corpus, in the order of their names.
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
