//! The server process: spawning it, waiting until it answers, stopping it whatever it takes.

use super::builds::Build;
use super::os_user::OsUser;
use super::process;
use crate::clock::{self, Clock, Monotonic};
use crate::interrupt;
use crate::problem::{IoContext, Problem};
use crate::session::conninfo::HostAddress;
use crate::session::{ConnectOptions, Session};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A fast shutdown includes a checkpoint; after this long it is given up.
const FAST_SHUTDOWN: Duration = Duration::from_mins(1);
/// An immediate shutdown only has to end processes.
const IMMEDIATE_SHUTDOWN: Duration = Duration::from_secs(10);
/// Once the socket is there, connecting to it works or never will.
const DEAF: Duration = Duration::from_secs(30);
/// A server that has no socket after this long hangs; much shared memory takes its time.
const SILENCE: Duration = Duration::from_mins(10);
const POLL: Duration = Duration::from_millis(20);
/// A log longer than this is put aside at the next start.
const LOG_MAX: u64 = 64 << 20;

/// What becomes of the server when this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It is stopped, even when we are killed.
    WithUs,
    /// It stays.
    Detached,
}

/// Everything needed to start one.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) build: Build,
    pub(crate) user: OsUser,
    pub(crate) data_dir: PathBuf,
    pub(crate) log_file: PathBuf,
}

/// A running server, ours or found running.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) pid: i32,
    data_dir: PathBuf,
    log_file: PathBuf,
    /// Present when this process started it.
    child: Option<Child>,
    /// Where the log stood when it was started.
    log_start: u64,
}

impl Server {
    /// One that runs already.
    pub(crate) fn found(pid: i32, recipe: &Recipe) -> Server {
        Self::of(pid, &recipe.data_dir, &recipe.log_file)
    }

    /// The running server of a data directory.
    pub(crate) fn of(pid: i32, data_dir: &Path, log_file: &Path) -> Server {
        Server {
            pid,
            data_dir: data_dir.to_owned(),
            log_file: log_file.to_owned(),
            child: None,
            log_start: 0,
        }
    }

    /// Starts the server; it does not answer yet. With [`Lifetime::WithUs`] the kernel ends it
    /// when the calling *thread* ends, so call this from a thread that lives as long as needed.
    pub(crate) fn spawn(recipe: &Recipe, lifetime: Lifetime) -> Result<Server, Problem> {
        let (log, log_start) = open_log(&recipe.log_file)?;
        let errors = log.try_clone().or_problem("start the server")?;
        let mut command = recipe.user.command(recipe.build.bindir.join("postgres"));
        command.arg("-D").arg(&recipe.data_dir);
        command.stdout(log).stderr(errors);
        detach(&mut command, lifetime);
        let child = command.spawn().map_err(|error| {
            Problem::environment(format!(
                "cannot start {} as {}: {error}",
                recipe.build.bindir.join("postgres").display(),
                recipe.user.name
            ))
        })?;
        Ok(Server {
            pid: i32::try_from(child.id()).unwrap_or(i32::MAX),
            data_dir: recipe.data_dir.clone(),
            log_file: recipe.log_file.clone(),
            child: Some(child),
            log_start,
        })
    }

    /// Is it still there?
    pub(crate) fn alive(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            // Not by postmaster.pid: that goes a moment before the process does.
            None => process::works_in(self.pid, &self.data_dir),
        }
    }

    /// Waits until a session can be had; that is long while the server replays its log after a
    /// crash.
    pub(crate) fn wait_ready(&mut self, connect: &ConnectOptions) -> Result<Session, Problem> {
        let clock = Monotonic::start();
        let mut silent_since = clock.now();
        loop {
            interrupt::check()?;
            let error = match Session::connect(connect) {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            if !self.alive() {
                return Err(self.failed_to_start());
            }
            // "the database system is starting up", "… is in recovery mode", "… shutting down"
            if error.is("57P03") {
                silent_since = clock.now();
            } else if error.sqlstate.is_some() {
                return Err(error.into());
            }
            let limit = if listens(connect) { DEAF } else { SILENCE };
            if clock.now() > silent_since.after(limit) {
                return Err(Problem::environment(format!(
                    "the server does not answer: {}",
                    error.message
                ))
                .hint(format!("its log is {}", self.log_file.display())));
            }
            clock::pause(POLL);
        }
    }

    fn failed_to_start(&self) -> Problem {
        let tail = self.log_tail();
        let hint = hint_for(&tail).unwrap_or("the whole log tells more");
        Problem::environment(format!("the server did not start:\n{tail}"))
            .hint(format!("{hint}; the log is {}", self.log_file.display()))
    }

    /// The last lines that the server wrote since it was started.
    pub(crate) fn log_tail(&self) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.log_file)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(
                self.log_start.max(length.saturating_sub(8 << 10)),
            ))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Tells the server to read its configuration files again.
    pub(crate) fn reload(&self) {
        process::signal(self.pid, Signal::HUP);
    }

    /// Fast shutdown, then immediate shutdown, then SIGKILL to whatever is left.
    ///
    /// # Errors
    /// An environment problem when the server had to be killed; it is down nevertheless.
    pub(crate) fn stop(&mut self) -> Result<(), Problem> {
        if !self.alive() {
            end_orphans(&self.data_dir);
            return Ok(());
        }
        process::signal(self.pid, Signal::INT);
        if self.gone_within(FAST_SHUTDOWN) {
            end_orphans(&self.data_dir);
            return Ok(());
        }
        process::signal(self.pid, Signal::QUIT);
        if !self.gone_within(IMMEDIATE_SHUTDOWN) {
            process::signal(self.pid, Signal::KILL);
            self.gone_within(IMMEDIATE_SHUTDOWN);
        }
        end_orphans(&self.data_dir);
        Err(Problem::environment(format!(
            "the server did not shut down within {} s and was stopped without a checkpoint",
            FAST_SHUTDOWN.as_secs()
        ))
        .hint(format!(
            "the next start recovers the data; see {} for what it was doing",
            self.log_file.display()
        )))
    }

    fn gone_within(&mut self, limit: Duration) -> bool {
        let clock = Monotonic::start();
        let end = clock.now().after(limit);
        while self.alive() {
            if clock.now() > end {
                return false;
            }
            clock::pause(POLL);
        }
        true
    }
}

/// Ends server processes that outlived their postmaster. They hold shared memory and may still
/// write; no server may start on the directory before they are gone.
pub(crate) fn end_orphans(data_dir: &Path) {
    // Most notice by themselves; then their own way out, as the postmaster would have asked for it
    // after a crash; then the hard one.
    for (how, rounds) in [
        (None, 25),
        (Some(Signal::QUIT), 100),
        (Some(Signal::KILL), 500),
    ] {
        if let Some(how) = how {
            for pid in process::all(data_dir) {
                process::signal(pid, how);
            }
        }
        for _ in 0..rounds {
            if process::all(data_dir).is_empty() {
                return;
            }
            clock::pause(POLL);
        }
    }
}

/// Is there a socket to connect to?
fn listens(connect: &ConnectOptions) -> bool {
    connect.hosts.iter().any(|(host, port)| match host {
        HostAddress::Unix(directory) => directory.join(format!(".s.PGSQL.{port}")).exists(),
        HostAddress::Tcp { .. } => false,
    })
}

/// Puts the server out of reach of the terminal's Ctrl-C, and ties it to us when asked.
fn detach(command: &mut Command, lifetime: Lifetime) {
    let parent = rustix::process::getpid();
    let in_child = move || -> std::io::Result<()> {
        rustix::process::setsid()?;
        // A shell that starts us in the background has SIGINT ignored, and that is inherited: the
        // signal that ends the server would be lost until it has a handler of its own.
        #[allow(
            unsafe_code,
            reason = "there is no safe way to a signal's default action"
        )]
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            // SAFETY: SIG_DFL installs no code of ours, and signal(2) is async-signal-safe.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        if lifetime == Lifetime::WithUs {
            // After the change of user, which would clear it. SIGINT is a fast shutdown.
            rustix::process::set_parent_process_death_signal(Some(Signal::INT))?;
            // We may have been killed before that took effect.
            if rustix::process::getppid() != Some(parent) {
                return Err(std::io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    };
    #[allow(
        unsafe_code,
        reason = "the standard library has no safe way into the child"
    )]
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are
    // allowed: it makes plain system calls and neither allocates nor locks (an io::Error
    // from an errno or an ErrorKind is a plain value).
    unsafe {
        command.pre_exec(in_child);
    }
}

/// Opens the log for appending; returns where it ends now.
fn open_log(path: &Path) -> Result<(File, u64), Problem> {
    if path
        .metadata()
        .is_ok_and(|metadata| metadata.len() > LOG_MAX)
    {
        let _ = fs::rename(path, path.with_extension("log.old"));
    }
    let open = || -> std::io::Result<(File, u64)> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        let length = file.metadata()?.len();
        Ok((file, length))
    };
    open().or_problem(format_args!("write {}", path.display()))
}

pub(crate) const NO_SPACE: &str =
    "free some space there, or set PGDYNO_HOME to a directory on another file system";

/// What to do about the usual reasons for a server not to start.
fn hint_for(log: &str) -> Option<&'static str> {
    [
        (
            "could not map anonymous shared memory",
            "there is not enough memory (or not enough huge pages): ask for less with --set \
             shared_buffers=…, or huge_pages=try",
        ),
        (
            "could not create shared memory segment",
            "the kernel's limits on shared memory are too low: ask for less with --set \
             shared_buffers=…",
        ),
        (
            "could not look up effective user ID",
            "PostgreSQL needs an entry in /etc/passwd for the user that it runs as",
        ),
        ("No space left on device", NO_SPACE),
        (
            "could not bind",
            "another process uses that port: choose another with --set port=…, or leave \
             listen_addresses away",
        ),
        (
            "could not access file",
            "a library of shared_preload_libraries does not exist in this build",
        ),
        (
            "incompatible with server",
            "the data directory was made by another version or build; choose another --cluster",
        ),
        (
            "invalid value for parameter",
            "check the settings given with --set",
        ),
        ("contains errors", "check the settings given with --set"),
        ("must be less than", "check the settings given with --set"),
    ]
    .iter()
    .find_map(|(sign, hint)| log.contains(sign).then_some(*hint))
}

/// Runs one of the server's programs to its end; what it wrote is the error.
pub(crate) fn run(mut command: Command, what: &str) -> Result<String, Problem> {
    detach(&mut command, Lifetime::WithUs);
    let output = command
        .stdin(Stdio::null())
        .output()
        .or_problem(format_args!("run {what}"))?;
    interrupt::check()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let telling: Vec<&str> = text
        .lines()
        .filter(|line| {
            ["FATAL:", "ERROR:", "error:", "HINT:", "could not"]
                .iter()
                .any(|sign| line.contains(sign))
        })
        .collect();
    let told = if telling.is_empty() {
        text.trim().to_owned()
    } else {
        telling.join("\n")
    };
    let problem = Problem::environment(format!("{what} failed ({}): {told}", output.status));
    Err(match hint_for(&told) {
        Some(hint) => problem.hint(hint),
        None => problem,
    })
}
