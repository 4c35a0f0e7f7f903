//! One cluster: its directory, its description, its data.
//!
//! ```text
//! clusters/pg18/
//!   cluster.json     what it is; nothing is ever removed from a directory without one
//!   lock             held by the pgdyno that works with it
//!   settings.conf    included from data/postgresql.conf; written anew for every start
//!   postgresql.log
//!   socket/          0700, the server's user's (or a short one below /tmp)
//!   data/            0700, the server's user's
//! ```

use super::builds::{Build, Origin};
use super::home::short_hash;
use super::lease::Lease;
use super::os_user::OsUser;
use super::{Progress, files, process, server};
use crate::problem::{IoContext, Problem};
use crate::session::ConnectOptions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The database that workloads use.
pub(crate) const DATABASE: &str = "pgdyno";
/// The superuser of managed clusters.
pub(crate) const SUPERUSER: &str = "postgres";
/// The longest path of a Unix socket that Linux takes: `sun_path` less its zero.
const SOCKET_PATH_MAX: usize = 107;
const FORMAT: u32 = 1;

/// `cluster.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// Version of this form.
    format: u32,
    /// As `PG_VERSION` has it.
    pub(crate) major: String,
    /// The build that ran it last.
    pub(crate) version: String,
    pub(crate) origin: Origin,
    pub(crate) bindir: PathBuf,
    /// Part of the socket's name; a TCP port only when `listen_addresses` is set.
    pub(crate) port: u16,
    encoding: String,
    locale: String,
    created_by: String,
    created_at: String,
    /// Its own settings, given to `server up`.
    pub(crate) settings: BTreeMap<String, String>,
    /// Process id of the server that was asked to stay.
    pub(crate) kept: Option<i32>,
}

/// A cluster's directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Directory {
    pub(crate) fn new(clusters: &Path, name: &str) -> Result<Directory, Problem> {
        let valid = !name.is_empty()
            && name.len() <= 64
            && !name.starts_with(['.', '-'])
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !valid {
            return Err(
                Problem::usage(format!("\"{name}\" is no name for a cluster"))
                    .hint("use up to 64 letters, digits, dots, dashes and underscores"),
            );
        }
        Ok(Directory {
            name: name.to_owned(),
            path: clusters.join(name),
        })
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("postgresql.log")
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.path.join("settings.conf")
    }

    fn json(&self) -> PathBuf {
        self.path.join("cluster.json")
    }

    /// `None` when there is no such cluster.
    pub(crate) fn describe(&self) -> Result<Option<Description>, Problem> {
        let path = self.json();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).or_problem(format_args!("read {}", path.display())),
        };
        let broken = |why: &dyn std::fmt::Display| {
            Problem::environment(format!("{} cannot be understood: {why}", path.display())).hint(
                format!(
                    "choose another --cluster, or remove {} if it is not needed any more",
                    self.path.display()
                ),
            )
        };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| broken(&e))?;
        match value["format"].as_u64() {
            Some(format) if format > u64::from(FORMAT) => {
                return Err(broken(&"it was written by a newer pgdyno"));
            }
            _ => {}
        }
        serde_json::from_value(value)
            .map(Some)
            .map_err(|e| broken(&e))
    }

    /// Where the socket is: in the cluster's directory unless its path would be too long.
    pub(crate) fn socket_dir(&self) -> PathBuf {
        let here = self.path.join("socket");
        let longest = here.join(".s.PGSQL.65535");
        if longest.as_os_str().len() <= SOCKET_PATH_MAX {
            return here;
        }
        let uid = rustix::process::geteuid().as_raw();
        PathBuf::from(format!("/tmp/pgdyno-{uid}-{}", short_hash(&self.path)))
    }

    /// How to reach the server on `port`.
    pub(crate) fn connect(&self, port: u16, database: &str) -> ConnectOptions {
        ConnectOptions::unix(&self.socket_dir(), port, SUPERUSER, database)
    }

    /// A port that other clusters are unlikely to have.
    fn port(&self) -> u16 {
        let hash = u32::from_str_radix(&short_hash(&self.path), 16).unwrap_or(0);
        20_000 + u16::try_from(hash % 10_000).unwrap_or(0)
    }
}

/// A cluster that nobody else works with while this exists.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) directory: Directory,
    pub(crate) description: Description,
    _lease: Lease,
}

impl Cluster {
    /// Takes a cluster that exists, whatever its state.
    pub(crate) fn take(directory: Directory) -> Result<Cluster, Problem> {
        let missing = || no_cluster(&directory.name);
        directory.describe()?.ok_or_else(missing)?;
        let lease = lease(&directory)?;
        let description = directory.describe()?.ok_or_else(missing)?;
        Ok(Cluster {
            directory,
            description,
            _lease: lease,
        })
    }

    /// Takes the cluster, made with `build` if there is none of that name.
    pub(crate) fn take_or_make(
        directory: Directory,
        build: &Build,
        user: &OsUser,
        progress: &mut dyn Progress,
    ) -> Result<Cluster, Problem> {
        files::make_directory(&directory.path, 0o755)?;
        let lease = lease(&directory)?;
        let description = if let Some(description) = directory.describe()? {
            description
        } else {
            refuse_foreign(&directory)?;
            describe_new(&directory, build)
        };
        let mut cluster = Cluster {
            directory,
            description,
            _lease: lease,
        };
        cluster.refuse_other_build(build)?;
        if process::postmaster(&cluster.directory.data()).is_none() {
            cluster.ran_by(build);
        }
        cluster.save()?;
        cluster.remove_leftovers()?;
        if !cluster.directory.data().exists() {
            progress.step(&format!(
                "creating the cluster {} (PostgreSQL {})",
                cluster.directory.name, build.version
            ));
            cluster.create(build, user)?;
        }
        cluster.refuse_other_user(user)?;
        cluster.prepare_socket(user)?;
        Ok(cluster)
    }

    /// PostgreSQL insists on running as the owner of its data.
    fn refuse_other_user(&self, user: &OsUser) -> Result<(), Problem> {
        let data = self.directory.data();
        let metadata = data
            .symlink_metadata()
            .or_problem(format_args!("read {}", data.display()))?;
        if metadata.uid() == user.uid() {
            return Ok(());
        }
        Err(Problem::environment(format!(
            "the cluster {} belongs to user {}, but its server would run as {}",
            self.directory.name,
            metadata.uid(),
            user.name
        ))
        .hint("run pgdyno as that user (as root: set PGDYNO_OS_USER), or choose another --cluster"))
    }

    /// Notes which build runs it.
    pub(crate) fn ran_by(&mut self, build: &Build) {
        self.description.version = build.version.to_string();
        self.description.bindir.clone_from(&build.bindir);
    }

    /// Stores `cluster.json`.
    pub(crate) fn save(&self) -> Result<(), Problem> {
        let mut text = serde_json::to_string_pretty(&self.description)
            .map_err(|error| Problem::defect(format!("cluster.json: {error}")))?;
        text.push('\n');
        files::replace(&self.directory.json(), text.as_bytes(), 0o644)
    }

    /// Data made by one major version or build is not for another.
    fn refuse_other_build(&self, build: &Build) -> Result<(), Problem> {
        let name = &self.directory.name;
        let major = &self.description.major;
        let hint = "choose another --cluster (or none: each build then has its own), or remove \
                    this one with `pgdyno server remove`";
        if *major != build.version.major() {
            return Err(Problem::usage(format!(
                "the cluster {name} was made with PostgreSQL {major}, not {}",
                build.version.major()
            ))
            .hint(hint));
        }
        let same = self.description.origin == build.origin
            && (build.origin == Origin::Embedded || self.description.bindir == build.bindir);
        if !same {
            return Err(Problem::usage(format!(
                "the cluster {name} was made with the binaries in {}, not those in {}",
                self.description.bindir.display(),
                build.bindir.display()
            ))
            .hint(hint));
        }
        Ok(())
    }

    /// What a killed `create` or `remove` left behind.
    fn remove_leftovers(&self) -> Result<(), Problem> {
        for name in files::names(&self.directory.path) {
            if name.starts_with("data.") {
                let path = self.directory.path.join(name);
                // An initdb that outlived its pgdyno would go on writing.
                server::end_orphans(&path);
                files::remove(&path)?;
            }
        }
        Ok(())
    }

    /// initdb under a temporary name; `data` appears when it is complete.
    fn create(&self, build: &Build, user: &OsUser) -> Result<(), Problem> {
        let data = self.directory.data();
        let temporary = self.directory.path.join("data.new");
        files::make_directory(&temporary, 0o700)?;
        user.own(&temporary)?;
        let host = if build.version.has_scram() {
            "scram-sha-256"
        } else {
            "md5"
        };
        let mut command = user.command(build.bindir.join("initdb"));
        command.arg("-D").arg(&temporary);
        command.args(["-U", SUPERUSER, "-E", &self.description.encoding]);
        command.arg(format!("--locale={}", self.description.locale));
        command.args(["--auth-local=trust", "-N"]);
        command.arg(format!("--auth-host={host}"));
        let created = server::run(command, "initdb")
            .and_then(|_| include_settings(&temporary, user))
            .and_then(|()| {
                fs::rename(&temporary, &data).or_problem(format_args!("write {}", data.display()))
            });
        if created.is_err() {
            let _ = files::remove(&temporary);
        }
        created
    }

    /// The socket's directory, private to the server's user, without leftovers of a dead server.
    fn prepare_socket(&self, user: &OsUser) -> Result<(), Problem> {
        let path = self.directory.socket_dir();
        if path.symlink_metadata().is_err() {
            files::make_directory(&path, 0o700)?;
            user.own(&path)?;
        }
        // Below /tmp somebody else may have been there first.
        let metadata = path
            .symlink_metadata()
            .or_problem(format_args!("read {}", path.display()))?;
        let private = metadata.is_dir()
            && metadata.permissions().mode().trailing_zeros() >= 6
            && metadata.uid() == user.uid();
        if !private {
            return Err(Problem::environment(format!(
                "{} is not a private directory of {}",
                path.display(),
                user.name
            ))
            .hint("remove it; pgdyno makes it anew for the server's socket"));
        }
        Ok(())
    }

    /// Makes way for a server to start: ends what a dead one left running, and removes the files
    /// that would make the new one believe that the old one still runs.
    pub(crate) fn clear_way(&self) -> Result<(), Problem> {
        let data = self.directory.data();
        server::end_orphans(&data);
        files::remove(&data.join("postmaster.pid"))?;
        let socket_dir = self.directory.socket_dir();
        for name in files::names(&socket_dir) {
            if name.starts_with(".s.PGSQL.") {
                files::remove(&socket_dir.join(name))?;
            }
        }
        Ok(())
    }

    /// Deletes everything; the description goes last, so that a killed removal can be repeated.
    pub(crate) fn delete(self) -> Result<(), Problem> {
        let path = &self.directory.path;
        if let Some(server) = process::postmaster(&self.directory.data()) {
            return Err(Problem::usage(format!(
                "the server of the cluster {} is running (process {})",
                self.directory.name, server.pid
            ))
            .hint(format!(
                "stop it first: pgdyno server down {}",
                self.directory.name
            )));
        }
        server::end_orphans(&self.directory.data());
        let data = self.directory.data();
        if data.exists() {
            let gone = path.join("data.gone");
            files::remove(&gone)?;
            fs::rename(&data, &gone).or_problem(format_args!("remove {}", data.display()))?;
        }
        files::remove(&self.directory.socket_dir())?;
        for name in files::names(path) {
            let ours = name.starts_with("data.")
                || name.starts_with("settings.conf")
                || name.starts_with("postgresql.log")
                || name == "cluster.json.new";
            if ours {
                files::remove(&path.join(name))?;
            }
        }
        files::remove(&self.directory.json())?;
        files::remove(&path.join("lock"))?;
        // Whatever else somebody put there stays, and the directory with it.
        let _ = fs::remove_dir(path);
        Ok(())
    }
}

/// The problem of a name that no cluster has.
pub(crate) fn no_cluster(name: &str) -> Problem {
    Problem::usage(format!("there is no cluster {name}"))
        .hint("`pgdyno server status` lists the clusters, `pgdyno server up` makes one")
}

fn lease(directory: &Directory) -> Result<Lease, Problem> {
    Lease::try_take(&directory.path.join("lock"))?.map_err(|holder| {
        let who = holder.map_or_else(String::new, |pid| format!(" (process {pid})"));
        Problem::environment(format!(
            "another pgdyno{who} is working with the cluster {}",
            directory.name
        ))
        .hint("wait until it ends, or use another cluster with --cluster NAME")
    })
}

/// A directory that has data but no description was not made by us.
fn refuse_foreign(directory: &Directory) -> Result<(), Problem> {
    if !directory.data().exists() {
        return Ok(());
    }
    Err(Problem::environment(format!(
        "{} has data but no cluster.json: pgdyno did not make it",
        directory.path.display()
    ))
    .hint("choose another --cluster, or move that directory away"))
}

fn describe_new(directory: &Directory, build: &Build) -> Description {
    Description {
        format: FORMAT,
        major: build.version.major(),
        version: build.version.to_string(),
        origin: build.origin,
        bindir: build.bindir.clone(),
        port: directory.port(),
        encoding: "UTF8".into(),
        locale: "C".into(),
        created_by: concat!("pgdyno ", env!("CARGO_PKG_VERSION")).into(),
        created_at: crate::clock::wall().to_string(),
        settings: BTreeMap::new(),
        kept: None,
    }
}

/// Appends the include line to the new data directory's `postgresql.conf`.
fn include_settings(data: &Path, user: &OsUser) -> Result<(), Problem> {
    let path = data.join("postgresql.conf");
    let append = || -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new().append(true).open(&path)?;
        file.write_all(
            b"\n# What pgdyno sets, for this cluster and for a run.\ninclude '../settings.conf'\n",
        )
    };
    user.act(append)
        .or_problem(format_args!("write {}", path.display()))
}
