//! One pgdyno at a time: a lock file with the holder's process id in it.

use super::process;
use crate::interrupt;
use crate::problem::{IoContext, Problem};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Between two looks at a lock that somebody holds.
const STEP: Duration = Duration::from_millis(100);
/// How often to look again when the holder is dead: ten seconds.
const PATIENCE_STEPS: u32 = 100;

/// Held until dropped; the kernel lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub(crate) struct Lease {
    file: File,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Closing is not enough while a child that another thread has just forked has the file too.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Who has it, as far as the file tells.
pub(crate) type Holder = Option<i32>;

impl Lease {
    /// Takes the lock at `path`, or says who holds it.
    pub(crate) fn try_take(path: &Path) -> Result<Result<Lease, Holder>, Problem> {
        let attempt = || -> std::io::Result<Result<Lease, Holder>> {
            let mut patience = PATIENCE_STEPS;
            loop {
                let mut file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(path)?;
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => {}
                    Err(rustix::io::Errno::WOULDBLOCK) => {
                        let mut holder = String::new();
                        file.read_to_string(&mut holder)?;
                        let holder: Holder = holder.trim().parse().ok();
                        // A child that a killed holder had just forked has the lock until it execs.
                        let gone = holder.is_some_and(|pid| !process::alive(pid));
                        if gone && patience > 0 {
                            patience -= 1;
                            crate::clock::pause(STEP);
                            continue;
                        }
                        return Ok(Err(holder));
                    }
                    Err(error) => return Err(error.into()),
                }
                // Somebody may have removed the file between our open and our lock.
                if !is_still(path, &file) {
                    continue;
                }
                file.set_len(0)?;
                file.seek(SeekFrom::Start(0))?;
                writeln!(file, "{}", std::process::id())?;
                return Ok(Ok(Lease { file }));
            }
        };
        attempt().or_problem(format_args!("lock {}", path.display()))
    }

    /// Takes the lock, waiting for its holder; `waiting` is called once before the wait.
    pub(crate) fn take(path: &Path, waiting: impl FnOnce(Holder)) -> Result<Lease, Problem> {
        let mut waiting = Some(waiting);
        loop {
            match Lease::try_take(path)? {
                Ok(lease) => return Ok(lease),
                Err(holder) => {
                    if let Some(waiting) = waiting.take() {
                        waiting(holder);
                    }
                }
            }
            interrupt::check()?;
            crate::clock::pause(STEP);
        }
    }
}

fn is_still(path: &Path, file: &File) -> bool {
    match (path.metadata(), file.metadata()) {
        (Ok(there), Ok(ours)) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_learns_the_first_ones_process_id() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = Lease::try_take(&path).unwrap().unwrap();
        let holder = Lease::try_take(&path).unwrap().unwrap_err();
        assert_eq!(holder, i32::try_from(std::process::id()).ok());
        drop(first);
        assert!(Lease::try_take(&path).unwrap().is_ok());
    }

    #[test]
    fn a_waiting_taker_gets_it_once_the_first_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = Lease::try_take(&path).unwrap().unwrap();
        let mut told = None;
        Lease::take(&path, |holder| {
            told = holder;
            drop(first);
        })
        .unwrap();
        assert_eq!(told, i32::try_from(std::process::id()).ok());
    }
}
