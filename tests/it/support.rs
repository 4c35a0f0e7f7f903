//! Throw-away servers for tests: managed clusters in a temporary home, Unix socket, no port. The
//! builds come from the machine's cache, fetched on first use.

#![allow(dead_code, reason = "each area uses its part")]

use pgdyno::problem::Problem;
use pgdyno::session::ConnectOptions;
use pgdyno::session::conninfo::HostAddress;
use pgdyno::target::{self, Places, Progress, Target, TargetRequest};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A running server; stopped and removed on drop.
pub(crate) struct Server {
    pub(crate) bindir: PathBuf,
    pub(crate) data_dir: PathBuf,
    pub(crate) socket_dir: PathBuf,
    pub(crate) port: u16,
    pub(crate) postmaster_pid: i32,
    // Before the home: the server stops before its directory goes.
    _target: Target,
    _home: Home,
}

impl Server {
    /// Superuser `postgres`, trust, the given database.
    pub(crate) fn connect(&self, database: &str) -> ConnectOptions {
        ConnectOptions::unix(&self.socket_dir, self.port, "postgres", database)
    }
}

/// One server for the whole test process; tests make their own databases in it. It ends with the
/// process, because the kernel tells it to.
pub(crate) fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| start("18", &[]))
}

/// A server of its own, for tests that stop, break or configure it; `settings` are `name=value`.
pub(crate) fn start(version: &str, settings: &[&str]) -> Server {
    let home = Home::with_cluster(version);
    let target = acquire(&home.places, &request(version, settings)).unwrap();
    let (HostAddress::Unix(socket_dir), port) = target.connect.hosts[0].clone() else {
        panic!("a managed server is reached through a Unix socket");
    };
    Server {
        bindir: target.bindir.clone().unwrap(),
        data_dir: target.data_dir.clone().unwrap(),
        socket_dir,
        port,
        postmaster_pid: target.postmaster_pid.unwrap(),
        _target: target,
        _home: home,
    }
}

/// A request for the embedded server of `version` with settings as `name=value`.
pub(crate) fn request(version: &str, settings: &[&str]) -> TargetRequest {
    TargetRequest {
        pg: Some(version.to_owned()),
        settings: settings
            .iter()
            .map(|setting| {
                let (name, value) = setting.split_once('=').unwrap();
                (name.to_owned(), value.to_owned())
            })
            .collect(),
        ..TargetRequest::default()
    }
}

/// [`target::acquire_in`] on a thread that lives as long as the process: a server ends with the
/// thread that started it, and a test's thread may be gone before the server is.
pub(crate) fn acquire(places: &Places, request: &TargetRequest) -> Result<Target, Problem> {
    type Job = Box<dyn FnOnce() + Send>;
    static KEEPER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
        Mutex::new(sender)
    });
    let (places, request) = (places.clone(), request.clone());
    let (answer, result) = channel();
    let job: Job = Box::new(move || {
        let _ = answer.send(target::acquire_in(&places, &request, &mut Quiet));
    });
    keeper.lock().unwrap().send(job).unwrap();
    result.recv().unwrap()
}

/// Tells nobody.
pub(crate) struct Quiet;

impl Progress for Quiet {
    fn step(&mut self, _what: &str) {}
    fn bytes(&mut self, _done: u64, _total: Option<u64>) {}
}

/// A temporary home for clusters; removed on drop, and by the next test process when this one is
/// killed or keeps it to its end.
pub(crate) struct Home {
    pub(crate) places: Places,
    directory: tempfile::TempDir,
}

impl Home {
    /// Without any cluster.
    pub(crate) fn empty() -> Home {
        static SWEPT: OnceLock<()> = OnceLock::new();
        SWEPT.get_or_init(sweep);
        let directory = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in("/tmp")
            .unwrap();
        let places = Places {
            clusters: directory.path().join("clusters"),
            ..Places::standard().unwrap()
        };
        Home { places, directory }
    }

    /// With the default cluster of `version`, stopped: a copy of one that is made once.
    pub(crate) fn with_cluster(version: &str) -> Home {
        static TEMPLATES: Mutex<BTreeMap<String, Home>> = Mutex::new(BTreeMap::new());
        let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
        let template = templates
            .entry(version.to_owned())
            .or_insert_with(|| template(version));
        let home = Home::empty();
        let status = Command::new("cp")
            .arg("-a")
            .args([&template.places.clusters, &home.places.clusters])
            .status()
            .unwrap();
        assert!(status.success());
        home
    }

    /// The directory of the default cluster of `version`.
    pub(crate) fn cluster(&self, version: &str) -> PathBuf {
        self.places.clusters.join(format!("pg{version}"))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A test that failed may have left a server that was to stay.
        stop_all(&self.places);
    }
}

fn stop_all(places: &Places) {
    for status in target::status(places).unwrap_or_default() {
        if status.state == "running" {
            let _ = target::down(places, Some(&status.name), &mut Quiet);
        }
    }
}

fn template(version: &str) -> Home {
    let home = Home::empty();
    // Becomes the cluster's own setting, and so that of its copies.
    let request = request(version, &["fsync=off"]);
    target::up(&home.places, &request, &mut Quiet).unwrap();
    target::down(&home.places, None, &mut Quiet).unwrap();
    // Tests of connecting make their own rules; all others are let in.
    let hba = home.cluster(version).join("data/pg_hba.conf");
    let text = "local all all trust\nhost all all all trust\nlocal replication all trust\n";
    overwrite(&hba, text);
    home
}

/// Overwrites a file in place: its owner and mode stay.
pub(crate) fn overwrite(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

const PREFIX: &str = "pgdyno-test-";

/// Removes the homes of test processes that are gone.
fn sweep() {
    for entry in std::fs::read_dir("/tmp").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('-'))
            .and_then(|(pid, _)| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            stop_all(&Places {
                clusters: entry.path().join("clusters"),
                ..Places::standard().unwrap()
            });
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Home {
    /// As `PGDYNO_HOME` for the program itself, with the machine's cache of builds in it.
    pub(crate) fn root(&self) -> &Path {
        link_builds(self.directory.path());
        self.directory.path()
    }
}

/// Makes the machine's cache of builds the one of the home at `root`.
fn link_builds(root: &Path) {
    let cache = Places::standard().unwrap().builds;
    std::fs::create_dir_all(&cache).unwrap();
    let link = root.join("postgres");
    if !link.exists() {
        std::os::unix::fs::symlink(cache, link).unwrap();
    }
}

/// A home on a filesystem of a given size; needs root. Unmounted on drop.
pub(crate) struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    /// `size` as mount takes it, for example `220m`.
    pub(crate) fn new(size: &str) -> SmallDisk {
        let directory = tempfile::Builder::new()
            .prefix("pgdyno-small-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in("/tmp")
            .unwrap();
        let disk = SmallDisk { directory };
        disk.mount(&[
            "-t",
            "tmpfs",
            "-o",
            &format!("mode=0755,size={size}"),
            "tmpfs",
        ]);
        link_builds(disk.path());
        disk
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn grow(&self, size: &str) {
        self.mount(&["-o", &format!("remount,size={size}")]);
    }

    fn mount(&self, arguments: &[&str]) {
        let status = Command::new("mount")
            .args(arguments)
            .arg(self.path())
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A test that failed may have left a server that was to stay.
        stop_all(&Places {
            clusters: self.path().join("clusters"),
            ..Places::standard().unwrap()
        });
        // Lazily: whatever else is in there must not keep the mount.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Tells that a test did nothing here, and why. Written to stderr itself: what `eprintln!` says in a
/// test that passes is never shown.
pub(crate) fn skipped(reason: &str) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
