//! The files of an exchange through a directory.
//!
//! - `rank-N.lock`: locked while rank N lives; contains its host name.
//! - `rank-N`: the string of rank N.
//! - `verdict`: the reason why the exchange failed.

use ripieno_run::JobFailure;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The directory of one run.
pub struct RunDirectory {
    path: PathBuf,
    /// This rank's lock file, locked as long as it is open.
    lock_state: Option<File>,
}

/// The state of a rank, as its lock shows it.
#[derive(Debug, PartialEq, Eq)]
pub enum LockState {
    /// The rank has not arrived, or has left normally.
    Unknown,
    /// The rank holds its lock.
    Alive,
    /// The rank has released its lock without leaving normally.
    Dead {
        /// The host of the rank.
        host: String,
    },
}

impl RunDirectory {
    /// Create the directory as rank 0. The other ranks use it only once rank 0 holds its lock.
    pub fn create(path: &Path) -> io::Result<RunDirectory> {
        fs::create_dir(path)?;
        Ok(RunDirectory { path: path.to_path_buf(), lock_state: None })
    }

    /// Return the directory of a run with a live rank 0.
    pub fn find(root: &Path, prefix: &str) -> Option<RunDirectory> {
        let directories = directories(root, prefix).ok()?;
        directories.into_iter().find(|directory| directory.lock_state(0) == LockState::Alive)
    }

    /// Remove the directories of earlier runs; return a directory with a live rank 0.
    pub fn sweep(root: &Path, prefix: &str) -> io::Result<Option<RunDirectory>> {
        let (alive, dead): (Vec<_>, Vec<_>) =
            directories(root, prefix)?.into_iter().partition(|directory| directory.lock_state(0) == LockState::Alive);
        dead.into_iter().for_each(RunDirectory::remove);
        Ok(alive.into_iter().next())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Create and lock this rank's lock file. It is locked before it becomes visible, and each rank has only one.
    pub fn lock_rank(&mut self, rank: usize, host: &str) -> io::Result<()> {
        let hidden = self.path.join(format!(".rank-{rank}.{}", std::process::id()));
        let mut file = File::create(&hidden)?;
        file.write_all(host.as_bytes())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let linked = fs::hard_link(&hidden, self.lock_path(rank));
        fs::remove_file(&hidden)?;
        linked?;
        self.lock_state = Some(file);
        Ok(())
    }

    pub fn publish(&self, rank: usize, string: &str) -> io::Result<()> {
        self.write_atomically(&format!("rank-{rank}"), string)
    }

    pub fn read(&self, rank: usize) -> Option<String> {
        fs::read_to_string(self.path.join(format!("rank-{rank}"))).ok()
    }

    /// Publish the reason why the exchange failed.
    pub fn write_verdict(&self, failure: &JobFailure) {
        if self.verdict().is_none() {
            // A rank that cannot read this detects the failure itself.
            let _ = serde_json::to_string(failure).map(|text| self.write_atomically("verdict", &text));
        }
    }

    pub fn verdict(&self) -> Option<JobFailure> {
        let text = fs::read_to_string(self.path.join("verdict")).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub fn lock_state(&self, rank: usize) -> LockState {
        let Ok(mut file) = File::open(self.lock_path(rank)) else { return LockState::Unknown };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(_) => LockState::Alive,
            Ok(()) if !self.lock_path(rank).exists() => LockState::Unknown,
            Ok(()) => {
                let mut host = String::new();
                // The host name stays empty if it is unreadable.
                let _ = file.read_to_string(&mut host);
                LockState::Dead { host }
            }
        }
    }

    pub fn others_live(&self, world_size: usize) -> bool {
        (1..world_size).any(|rank| self.lock_state(rank) == LockState::Alive)
    }

    /// Leave normally. If rank 0 is dead, the last rank to leave removes the directory.
    pub fn leave(self, rank: usize) {
        let _ = fs::remove_file(self.lock_path(rank));
        if matches!(self.lock_state(0), LockState::Dead { .. }) {
            self.remove();
        }
    }

    /// Remove the directory with all files.
    pub fn remove(self) {
        let _ = fs::remove_dir_all(&self.path);
    }

    fn lock_path(&self, rank: usize) -> PathBuf {
        self.path.join(format!("rank-{rank}.lock"))
    }

    fn write_atomically(&self, name: &str, text: &str) -> io::Result<()> {
        let hidden = self.path.join(format!(".{name}.{}", std::process::id()));
        fs::write(&hidden, text)?;
        fs::rename(&hidden, self.path.join(name))
    }
}

fn directories(root: &Path, prefix: &str) -> io::Result<Vec<RunDirectory>> {
    let entries = fs::read_dir(root)?.filter_map(Result::ok);
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    Ok(ours.map(|entry| RunDirectory { path: entry.path(), lock_state: None }).collect())
}
