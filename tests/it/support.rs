//! Throw-away servers for tests: Unix socket in a temporary directory, no port.

#![allow(dead_code, reason = "each area uses its part")]

use pgdyno::session::ConnectOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A running server; stopped and removed on drop.
pub(crate) struct Server {
    pub(crate) bindir: PathBuf,
    pub(crate) data_dir: PathBuf,
    pub(crate) socket_dir: PathBuf,
    pub(crate) port: u16,
    child: Child,
    _directory: tempfile::TempDir,
}

impl Server {
    /// Superuser `postgres`, trust, the given database.
    pub(crate) fn connect(&self, database: &str) -> ConnectOptions {
        ConnectOptions::unix(&self.socket_dir, self.port, "postgres", database)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        let _ = self.child.wait();
    }
}

/// One server for the whole test process; tests make their own databases in it.
pub(crate) fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| start("18", &[]))
}

/// A server of its own, for tests that stop, break or configure it.
pub(crate) fn start(version: &str, settings: &[&str]) -> Server {
    let bindir = PathBuf::from(match version {
        "9.6" => "/tmp/pg/9.6.24/bin",
        "12" => "/tmp/pg/12.22.0/bin",
        _ => "/tmp/pg/18.6.0/bin",
    });
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let uid = own(directory.path());
    let run = |program: &str| {
        let mut command = Command::new(bindir.join(program));
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        command.current_dir(directory.path());
        command
    };
    let status = run("initdb")
        .args(["-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "-D"])
        .arg(&data_dir)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let mut command = run("postgres");
    command
        .arg("-D")
        .arg(&data_dir)
        .arg("-k")
        .arg(directory.path());
    command.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
    for setting in settings {
        command.args(["-c", setting]);
    }
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let child = command.stderr(log).stdout(Stdio::null()).spawn().unwrap();
    let server = Server {
        bindir,
        data_dir,
        socket_dir: directory.path().to_owned(),
        port: 5432,
        child,
        _directory: directory,
    };
    while pgdyno::session::Session::connect(&server.connect("postgres")).is_err() {
        pgdyno::clock::pause(std::time::Duration::from_millis(50));
    }
    server
}

/// Gives `directory` to an unprivileged user when this is root; returns that user.
fn own(directory: &Path) -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    std::os::unix::fs::chown(directory, Some(65534), Some(65534)).unwrap();
    Some(65534)
}
