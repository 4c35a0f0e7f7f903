//! A build of PostgreSQL: a directory with `postgres` and `initdb` that the server's user can run.

use super::TargetRequest;
use super::archive;
use super::home::{Places, short_hash};
use super::os_user::OsUser;
use super::version::{Version, Wanted, too_old};
use super::{Progress, files};
use crate::problem::{IoContext, Problem};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where binaries come from; a data directory belongs to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Fetched by pgdyno.
    Embedded,
    /// Installed by somebody else.
    Installed,
}

/// Binaries that work.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) bindir: PathBuf,
    pub(crate) version: Version,
    pub(crate) origin: Origin,
}

impl Build {
    /// What the request asks for by `--pg` and `--pg-bindir`; fetched when need be.
    pub(crate) fn resolve(
        request: &TargetRequest,
        places: &Places,
        user: &OsUser,
        progress: &mut dyn Progress,
    ) -> Result<Build, Problem> {
        match (&request.pg_bindir, request.pg.as_deref()) {
            (Some(_), Some(pg)) => Err(Problem::usage(format!(
                "--pg {pg} and --pg-bindir exclude each other"
            ))
            .hint("give the one or the other")),
            (Some(bindir), None) => {
                let bindir = std::path::absolute(bindir)
                    .or_problem(format_args!("find {}", bindir.display()))?;
                Self::installed(&bindir, user).map_err(|problem| problem.context("--pg-bindir"))
            }
            (None, Some("found")) => Self::found(user),
            (None, Some(version)) => {
                Self::embedded(&Wanted::parse(version)?, places, user, progress)
            }
            (None, None) => Self::embedded(&Wanted::newest(), places, user, progress),
        }
    }

    /// A build from the cache or the network.
    pub(crate) fn embedded(
        wanted: &Wanted,
        places: &Places,
        user: &OsUser,
        progress: &mut dyn Progress,
    ) -> Result<Build, Problem> {
        let version = archive::obtain(places, wanted, progress)?;
        let bindir = archive::bindir(&places.builds, version);
        let found = runs(&bindir, user).map_err(|problem| {
            problem.hint(
                "the embedded builds need glibc; otherwise use an installed PostgreSQL with \
                 --pg-bindir DIR or --pg found",
            )
        })?;
        if found.major() != version.major() {
            return Err(Problem::environment(format!(
                "{} is PostgreSQL {found}, not {version}",
                bindir.display()
            ))
            .hint("remove that directory; it will be fetched again"));
        }
        Ok(Build {
            bindir,
            version,
            origin: Origin::Embedded,
        })
    }

    /// The build in a directory that somebody else installed.
    pub(crate) fn installed(bindir: &Path, user: &OsUser) -> Result<Build, Problem> {
        let hint = "name the directory that holds postgres and initdb, such as \
                    /usr/lib/postgresql/18/bin";
        if !bindir.is_dir() {
            return Err(
                Problem::usage(format!("{} is not a directory", bindir.display())).hint(hint),
            );
        }
        for program in ["postgres", "initdb"] {
            let path = bindir.join(program);
            let Ok(metadata) = path.metadata() else {
                return Err(Problem::usage(format!("there is no {}", path.display())).hint(hint));
            };
            if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
                return Err(
                    Problem::usage(format!("{} is not executable", path.display())).hint(hint),
                );
            }
        }
        let version = runs(bindir, user)?;
        if version.too_old() {
            return Err(too_old(&version.to_string()));
        }
        Ok(Build {
            bindir: bindir.to_owned(),
            version,
            origin: Origin::Installed,
        })
    }

    /// `--pg found`: the newest of those that are installed in the usual places.
    fn found(user: &OsUser) -> Result<Build, Problem> {
        let places = usual_places();
        let mut refused = None;
        let mut builds = Vec::new();
        for bindir in places {
            match Self::installed(&bindir, user) {
                Ok(build) => builds.push(build),
                Err(problem) => refused = Some(problem),
            }
        }
        builds
            .into_iter()
            .max_by_key(|build| build.version)
            .ok_or_else(|| {
                let why = refused.map_or_else(String::new, |p| format!(" ({})", p.message));
                Problem::environment(format!(
                    "--pg found: no PostgreSQL server is installed{why}"
                ))
                .hint(
                    "looked at pg_config, /usr/lib/postgresql/*/bin, /usr/pgsql-*/bin and \
                         /usr/local/pgsql/bin; name another directory with --pg-bindir, or leave \
                         --pg away for the embedded server",
                )
            })
    }

    /// The cluster's name when the user gives none: different binaries never share data.
    pub(crate) fn cluster_name(&self) -> String {
        match self.origin {
            Origin::Embedded => format!("pg{}", self.version.major()),
            Origin::Installed => format!(
                "pg{}-bindir-{}",
                self.version.major(),
                short_hash(&self.bindir)
            ),
        }
    }
}

/// Directories of servers by the habits of packagers.
fn usual_places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    let output = Command::new("pg_config")
        .arg("--bindir")
        .stderr(Stdio::null())
        .output();
    if let Ok(output) = output {
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !path.is_empty() {
            places.push(PathBuf::from(path));
        }
    }
    for name in files::names(Path::new("/usr/lib/postgresql")) {
        places.push(Path::new("/usr/lib/postgresql").join(name).join("bin"));
    }
    for name in files::names(Path::new("/usr")) {
        if name.starts_with("pgsql-") {
            places.push(Path::new("/usr").join(name).join("bin"));
        }
    }
    places.push(PathBuf::from("/usr/local/pgsql/bin"));
    places.retain(|place| place.join("postgres").exists());
    places.dedup();
    places
}

/// Runs `postgres --version` as the server's user: proves that it can, and tells the version.
fn runs(bindir: &Path, user: &OsUser) -> Result<Version, Problem> {
    let program = bindir.join("postgres");
    let output = user.command(&program).arg("--version").output();
    let output = output.map_err(|error| {
        Problem::environment(format!(
            "{} cannot run {}: {error}",
            user.name,
            program.display()
        ))
        .hint("the server's user must be able to read and execute the binaries")
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    // "postgres (PostgreSQL) 15.15 (Debian 15.15-0+deb12u1)"
    text.split_once(") ")
        .and_then(|(_, version)| Version::parse(version))
        .ok_or_else(|| {
            Problem::environment(format!(
                "{} --version says \"{}\"",
                program.display(),
                format!("{text}{}", String::from_utf8_lossy(&output.stderr)).trim()
            ))
            .hint("it is no PostgreSQL server that works on this machine")
        })
}
