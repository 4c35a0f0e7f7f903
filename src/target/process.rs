//! The server's processes as `/proc` shows them: which are there, which belong to a data directory.

use rustix::process::{Pid, Signal};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a postmaster writes into `postmaster.pid` (one fact a line).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PidFile {
    pub(crate) pid: i32,
    /// Missing while the server is still starting.
    pub(crate) port: Option<u16>,
}

/// Reads `postmaster.pid`; `None` when there is none or it is not one.
pub(crate) fn pid_file(data_dir: &Path) -> Option<PidFile> {
    let text = fs::read_to_string(data_dir.join("postmaster.pid")).ok()?;
    let mut lines = text.lines();
    // Negative in standalone mode.
    let pid: i32 = lines.next()?.trim().parse().ok()?;
    Some(PidFile {
        pid: pid.abs(),
        port: lines.nth(2).and_then(|line| line.trim().parse().ok()),
    })
}

/// The postmaster that runs on `data_dir`. A `postmaster.pid` whose process is gone, or is by now
/// something else, is no running server.
pub(crate) fn postmaster(data_dir: &Path) -> Option<PidFile> {
    pid_file(data_dir).filter(|file| works_in(file.pid, data_dir))
}

/// All server processes of `data_dir`: the postmaster and its children, also orphaned ones.
pub(crate) fn all(data_dir: &Path) -> Vec<i32> {
    super::files::names(Path::new("/proc"))
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter(|pid| works_in(*pid, data_dir))
        .collect()
}

/// Is `pid` a live `postgres` whose working directory is `data_dir`? (Every server process stays
/// in its data directory.)
pub(crate) fn works_in(pid: i32, data_dir: &Path) -> bool {
    let same = match (
        fs::metadata(format!("/proc/{pid}/cwd")),
        fs::metadata(data_dir),
    ) {
        (Ok(theirs), Ok(ours)) => (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()),
        _ => false,
    };
    same && command(pid).is_some_and(|name| name == "postgres") && alive(pid)
}

fn command(pid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// Does `pid` exist, and not only as a zombie?
pub(crate) fn alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // "pid (command) state …"; the command may hold anything, also parentheses.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Sends a signal; a process that is gone is fine.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Was the server of `data_dir` shut down cleanly? `DBState` in `global/pg_control`, which has
/// stood at the same place in all versions since 8.0: 1 is "shut down", 2 the same in a standby.
pub(crate) fn shut_down_cleanly(data_dir: &Path) -> bool {
    let state = fs::read(data_dir.join("global/pg_control"))
        .ok()
        .and_then(|bytes| Some(u32::from_ne_bytes(*bytes.get(16..)?.first_chunk()?)));
    matches!(state, Some(1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_postmaster_pid_of_a_stranger_is_no_server() {
        let directory = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            super::super::files::replace(
                &directory.path().join("postmaster.pid"),
                text.as_bytes(),
                0o600,
            )
            .unwrap();
        };
        assert_eq!(pid_file(directory.path()), None);
        for text in ["", "x\n"] {
            write(text);
            assert_eq!(pid_file(directory.path()), None, "{text}");
        }
        let own = std::process::id();
        write(&format!("{own}\n/data\n1700000000\n5433\n/socket\n"));
        let file = pid_file(directory.path()).unwrap();
        assert_eq!(file.pid.unsigned_abs(), own);
        assert_eq!(file.port, Some(5433));
        assert_eq!(postmaster(directory.path()), None);
        assert!(all(directory.path()).is_empty());
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while alive(pid) {
            crate::clock::pause(std::time::Duration::from_millis(5));
        }
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        child.wait().unwrap();
        assert!(!alive(pid));
    }
}
