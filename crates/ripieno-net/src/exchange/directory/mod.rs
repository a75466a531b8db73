//! An exchange through a directory that all ranks can access.
//!
//! Rank 0 creates a directory `ripieno-<tag>-<nonce>`. The tag is derived from the token, so that jobs do not mix. If
//! rank 0 of a directory is dead, the directory belongs to an earlier run. Each rank holds a lock on its file
//! `rank-N.lock` while it lives, so the other ranks detect a killed rank. A rank renames its finished file into place,
//! so the other ranks never read an incomplete string. Rank 0 removes the directory at the end.
//!
//! Cost: one read of the directory every few ms at first, and a few per second later. Requires a file system with locks
//! (`flock`) and atomic renames: every local one, NFS, Lustre, GPFS.

mod files;

use super::Exchange;
use crate::auth::seal;
use crate::config::{Config, fill_random};
use crate::error::NetError;
use crate::host::host_name;
use crate::peer_address::hex;
use files::{LockState, RunDirectory};
use ripieno_run::JobFailure;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Shortest and longest pause between two reads of the directory.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Interval between checks of the locks.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_millis(300);
/// Time for which rank 0 keeps the directory after a failed exchange, so that other ranks can read the reason.
const LINGER_TIMEOUT: Duration = Duration::from_millis(1000);

/// An exchange through a shared directory.
pub struct DirectoryExchange {
    config: Config,
    root: PathBuf,
    directory: Option<RunDirectory>,
    has_failed: bool,
}

impl DirectoryExchange {
    /// Create the exchange for `config.rank` through the existing directory `root`.
    pub fn new(config: &Config, root: impl AsRef<Path>) -> DirectoryExchange {
        DirectoryExchange {
            config: config.clone(),
            root: root.as_ref().to_path_buf(),
            directory: None,
            has_failed: false,
        }
    }

    /// Return the name prefix of this job's directories, equal in all of its runs.
    fn prefix(&self) -> String {
        let tag = hex(&seal(&self.config.token, "directory", &[])[..8]);
        format!("ripieno-{tag}-")
    }

    fn gather(&mut self, mine: &str, wait: &mut BackoffWait) -> Result<Vec<String>, NetError> {
        let (rank, world_size) = (self.config.rank, self.config.world_size);
        let root = self.root.display().to_string();
        let started = wait.started;
        let io_error = |error: io::Error| NetError::Exchange {
            rank,
            cause: format!("directory {root}: {error}"),
            elapsed_ms: started.elapsed().as_millis() as u64,
        };
        let directory = match rank {
            0 => {
                if let Some(other) = RunDirectory::sweep(&self.root, &self.prefix()).map_err(io_error)? {
                    let cause = format!("another process runs as rank 0 in {}", other.path().display());
                    return Err(NetError::Disagree { rank, peer: 0, cause });
                }
                let mut nonce = [0; 8];
                fill_random(&mut nonce)?;
                RunDirectory::create(&self.root.join(self.prefix() + &hex(&nonce))).map_err(io_error)?
            }
            _ => self.find_directory(wait)?,
        };
        let directory = self.directory.insert(directory);
        directory.lock_rank(rank, &host_name()).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let cause = format!("another process runs as rank {rank}");
                NetError::Disagree { rank, peer: rank, cause }
            }
            _ => io_error(error),
        })?;
        directory.publish(rank, mine).map_err(io_error)?;

        let mut strings: Vec<Option<String>> = vec![None; world_size];
        loop {
            for (peer, string) in strings.iter_mut().enumerate().filter(|(_, string)| string.is_none()) {
                *string = directory.read(peer);
            }
            if let Some(strings) = strings.iter().cloned().collect() {
                return Ok(strings);
            }
            if let Some(failure) = directory.verdict() {
                return Err(failure.into());
            }
            let dead = if wait.is_lock_check_due() { find_dead(directory, 0..world_size, rank) } else { None };
            if let Some(failure) = dead {
                directory.write_verdict(&failure);
                return Err(failure.into());
            }
            let missing = || (0..world_size).filter(|&peer| strings[peer].is_none()).collect();
            wait.pause(rank, missing, &format!("they published no address in {}", directory.path().display()))?;
        }
    }

    fn find_directory(&self, wait: &mut BackoffWait) -> Result<RunDirectory, NetError> {
        loop {
            if let Some(directory) = RunDirectory::find(&self.root, &self.prefix()) {
                return Ok(directory);
            }
            let cause = format!("rank 0 has created no directory in {}", self.root.display());
            wait.pause(self.config.rank, || vec![0], &cause)?;
        }
    }
}

impl Exchange for DirectoryExchange {
    fn exchange(&mut self, mine: &str) -> Result<Vec<String>, NetError> {
        self.config.check()?;
        let mut wait = BackoffWait::new(self.config.rendezvous_timeout);
        let result = self.gather(mine, &mut wait);
        self.has_failed = result.is_err();
        if let (0, Some(directory), Err(NetError::Missing { missing, .. })) =
            (self.config.rank, &self.directory, &result)
        {
            let cause = format!("did not connect within {:.1} s", self.config.rendezvous_timeout.as_secs_f64());
            let failure = |&rank| JobFailure::RankFailed { rank, host: String::new(), cause, traceback: String::new() };
            missing.first().map(failure).into_iter().for_each(|failure| directory.write_verdict(&failure));
        }
        result
    }

    fn lost(&mut self) -> Option<JobFailure> {
        let directory = self.directory.as_ref()?;
        find_dead(directory, 0..self.config.world_size, self.config.rank)
    }
}

impl Drop for DirectoryExchange {
    fn drop(&mut self) {
        let Some(directory) = self.directory.take() else { return };
        if self.config.rank != 0 {
            return directory.leave(self.config.rank);
        }
        if self.has_failed {
            let mut wait = BackoffWait::new(LINGER_TIMEOUT);
            while directory.others_live(self.config.world_size) && wait.pause(0, Vec::new, "").is_ok() {}
        }
        directory.remove();
    }
}

/// Return the failure of the first rank that died after its arrival.
fn find_dead(directory: &RunDirectory, ranks: impl Iterator<Item = usize>, own: usize) -> Option<JobFailure> {
    ranks.filter(|&peer| peer != own).find_map(|rank| match directory.lock_state(rank) {
        LockState::Dead { host } => {
            let cause = "its process ended while the ranks connected".to_string();
            Some(JobFailure::RankFailed { rank, host, cause, traceback: String::new() })
        }
        LockState::Unknown | LockState::Alive => None,
    })
}

/// A bounded wait with growing pauses. It polls, because the system does not report changes that other hosts make to a
/// shared directory.
struct BackoffWait {
    started: Instant,
    deadline: Instant,
    pause: Duration,
    next_lock_check: Instant,
}

impl BackoffWait {
    fn new(timeout: Duration) -> BackoffWait {
        let started = Instant::now();
        BackoffWait { started, deadline: started + timeout, pause: FIRST_PAUSE, next_lock_check: started }
    }

    fn is_lock_check_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next_lock_check;
        if due {
            self.next_lock_check = now + LOCK_CHECK_INTERVAL;
        }
        due
    }

    fn pause(&mut self, rank: usize, missing: impl Fn() -> Vec<usize>, cause: &str) -> Result<(), NetError> {
        if Instant::now() + self.pause > self.deadline {
            let elapsed_ms = self.started.elapsed().as_millis() as u64;
            return Err(NetError::Missing { rank, missing: missing(), cause: cause.to_string(), elapsed_ms });
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
