//! Bringing a managed cluster up with the settings that were asked for, and down again.

use super::archive;
use super::builds::{Build, Origin};
use super::cluster::{Cluster, DATABASE, Description, Directory};
use super::home::Places;
use super::os_user::OsUser;
use super::server::{Lifetime, NO_SPACE, Recipe, Server};
use super::settings::{self, Conf, Verification, Wanted};
use super::version::NEWEST_MAJOR;
use super::{Progress, TargetRequest, files, process, version};
use crate::clock::{self, Clock, Monotonic};
use crate::interrupt;
use crate::problem::{IoContext, Problem};
use crate::session::{ConnectOptions, Session};
use std::time::Duration;

/// How long a running server may take to read its configuration files again.
const RELOAD: Duration = Duration::from_secs(10);
/// When the server last read them.
const LOADED: &str = "SELECT pg_catalog.pg_conf_load_time()";

/// For whom the server is brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One run: its settings are an overlay, and the server goes down with it unless kept.
    Run,
    /// `server up`: the settings become the cluster's own, and the server stays.
    Up,
}

/// A server that is up, with the right to it. Dropped, it is stopped unless it stays.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) cluster: Cluster,
    pub(crate) recipe: Recipe,
    server: Option<Server>,
    /// Process id of the server that was found running.
    found: Option<i32>,
    /// The server outlives this value.
    stays: bool,
    /// `settings.conf` as it has to be once a run on a server that stays is over.
    afterwards: Option<String>,
}

/// The settings on their way into force.
struct Plan {
    conf: Conf,
    wanted: Wanted,
    understood: Wanted,
    /// The server's port under `conf`.
    port: u16,
    lifetime: Lifetime,
}

impl Managed {
    /// "embedded PostgreSQL 18.6, cluster pg18".
    pub(crate) fn describe(&self) -> String {
        let build = &self.recipe.build;
        let origin = match build.origin {
            Origin::Embedded => "embedded".to_owned(),
            Origin::Installed => format!("installed in {}:", build.bindir.display()),
        };
        let name = &self.cluster.directory.name;
        format!("{origin} PostgreSQL {}, cluster {name}", build.version)
    }

    /// Makes the cluster if need be, and its server answer with the settings in force.
    pub(crate) fn bring_up(
        places: &Places,
        request: &TargetRequest,
        purpose: Purpose,
        progress: &mut dyn Progress,
    ) -> Result<Managed, Problem> {
        Self::try_bring_up(places, request, purpose, progress).map_err(with_hint)
    }

    fn try_bring_up(
        places: &Places,
        request: &TargetRequest,
        purpose: Purpose,
        progress: &mut dyn Progress,
    ) -> Result<Managed, Problem> {
        let given = settings::normalise(&request.settings)?;
        let user = OsUser::for_server()?;
        places.prepare(&user)?;
        let (directory, build) = choose(places, request, &user, progress)?;
        let cluster = Cluster::take_or_make(directory, &build, &user, progress)?;
        let recipe = Recipe {
            build,
            user,
            data_dir: cluster.directory.data(),
            log_file: cluster.directory.log(),
        };
        let own = match purpose {
            Purpose::Up if !given.is_empty() => given.clone(),
            _ => cluster.description.settings.clone(),
        };
        let keep = request.keep || purpose == Purpose::Up;
        let wanted = settings::overlay(&own, &given);
        let plan = plan(&cluster, &recipe, wanted, keep)?;
        let afterwards = if keep {
            None
        } else {
            Some(conf(&cluster.directory, &cluster.description, &own)?.0.text)
        };
        let mut managed = Managed {
            cluster,
            recipe,
            server: None,
            found: None,
            stays: false,
            afterwards,
        };
        managed.bring_into_force(&plan, progress)?;
        let stays = managed.stays || keep;
        managed.cluster.description.settings = own;
        managed.cluster.description.kept = managed.pid().filter(|_| stays);
        managed.cluster.save()?;
        managed.stays = stays;
        Ok(managed)
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.server.as_ref().map(|server| server.pid)
    }

    /// Uses the server that runs, or starts one; on failure everything is as it was.
    fn bring_into_force(
        &mut self,
        plan: &Plan,
        progress: &mut dyn Progress,
    ) -> Result<(), Problem> {
        let path = self.cluster.directory.settings();
        let before = std::fs::read_to_string(&path).ok();
        let result = self.adopt(plan, progress).and_then(|adopted| {
            if adopted {
                return Ok(());
            }
            self.launch(plan, progress)
        });
        let Err(problem) = result else {
            return Ok(());
        };
        self.afterwards = None;
        let text = before.unwrap_or_default();
        if !text.is_empty() {
            files::replace(&path, text.as_bytes(), 0o644)?;
        }
        self.put_back(&text, progress).map_err(|also| Problem {
            message: format!("{}; {}", problem.message, also.message),
            ..problem.clone()
        })?;
        Err(problem)
    }

    /// After a failure, with the former `settings.conf` (its content is `text`) in place again: a
    /// server that stays runs on with it, any other is stopped.
    fn put_back(&mut self, text: &str, progress: &mut dyn Progress) -> Result<(), Problem> {
        let was_there = self.found.filter(|_| self.stays);
        if let Some(mut server) = self.server.take() {
            if was_there == Some(server.pid) && server.alive() {
                server.reload();
                self.server = Some(server);
                return Ok(());
            }
            server.stop()?;
        }
        if was_there.is_none() {
            return Ok(());
        }
        progress.step("restarting the server with its former settings");
        self.cluster.clear_way()?;
        let mut server = Server::spawn(&self.recipe, Lifetime::Detached)?;
        let port = port_in(text).unwrap_or(self.cluster.description.port);
        let connect = self.cluster.directory.connect(port, "postgres");
        let ready = server.wait_ready(&connect).map(drop);
        self.cluster.description.kept = Some(server.pid);
        self.server = Some(server);
        self.cluster.save()?;
        ready
    }

    /// Takes over a server that runs already; `false` when there is none (any more).
    fn adopt(&mut self, plan: &Plan, progress: &mut dyn Progress) -> Result<bool, Problem> {
        let Some(file) = process::postmaster(&self.recipe.data_dir) else {
            return Ok(false);
        };
        self.found = Some(file.pid);
        self.stays = self.cluster.description.kept == Some(file.pid);
        let server = self.server.insert(Server::found(file.pid, &self.recipe));
        let port = file.port.unwrap_or(plan.port);
        let connect = self.cluster.directory.connect(port, "postgres");
        progress.step("using the server that is running already");
        let mut session = match server.wait_ready(&connect) {
            Ok(session) => session,
            // It was on its way down, as a server is whose pgdyno was killed.
            Err(_) if !server.alive() && !interrupt::requested() => {
                (self.found, self.stays, self.server) = (None, false, None);
                return Ok(false);
            }
            Err(problem) => return Err(problem),
        };
        let build = self.recipe.build.version.to_string();
        let reason = if self.cluster.description.version != build {
            Some(format!("as PostgreSQL {build}"))
        } else if plan.lifetime == Lifetime::WithUs {
            // Left by a killed pgdyno; nobody would stop it if we were killed too.
            Some("as part of this run".to_owned())
        } else {
            None
        };
        if let Some(reason) = reason {
            drop(session);
            progress.step(&format!("restarting the server {reason}"));
            return self.restart(plan, progress).map(|()| true);
        }
        self.write(&plan.conf)?;
        self.reload(&mut session, &connect)?;
        drop(session);
        let connect = self.cluster.directory.connect(port, DATABASE);
        let verification = Self::verify(plan, &connect)?;
        if verification.pending.is_empty() {
            return refuse(&verification).map(|()| true);
        }
        progress.step(&format!(
            "restarting the server for {}",
            verification.pending.join(", ")
        ));
        self.restart(plan, progress).map(|()| true)
    }

    /// Restarts a server that ran before.
    fn restart(&mut self, plan: &Plan, progress: &mut dyn Progress) -> Result<(), Problem> {
        if let Some(mut server) = self.server.take() {
            server.stop()?;
        }
        self.cluster.ran_by(&self.recipe.build);
        self.cluster.save()?;
        self.launch(plan, progress)
    }

    /// Starts the server and sees to it that the settings are in force.
    fn launch(&mut self, plan: &Plan, progress: &mut dyn Progress) -> Result<(), Problem> {
        let clean = process::shut_down_cleanly(&self.recipe.data_dir);
        progress.step(&format!(
            "starting PostgreSQL {} (cluster {}){}",
            self.recipe.build.version,
            self.cluster.directory.name,
            if clean {
                ""
            } else {
                ", recovering after a crash"
            }
        ));
        self.cluster.clear_way()?;
        self.write(&plan.conf)?;
        let server = Server::spawn(&self.recipe, plan.lifetime)?;
        let server = self.server.insert(server);
        let connect = self.cluster.directory.connect(plan.port, "postgres");
        let session = server.wait_ready(&connect)?;
        make_database(session)?;
        let connect = self.cluster.directory.connect(plan.port, DATABASE);
        let mut verification = Self::verify(plan, &connect)?;
        // Right after a start nothing can be pending; what is so all the same is not in force.
        let pending = std::mem::take(&mut verification.pending);
        verification.refused.extend(
            pending
                .into_iter()
                .map(|name| (name, "it still waits for a restart".to_owned())),
        );
        refuse(&verification)
    }

    fn write(&self, conf: &Conf) -> Result<(), Problem> {
        files::replace(
            &self.cluster.directory.settings(),
            conf.text.as_bytes(),
            0o644,
        )
    }

    /// Has the running server read its files again, and waits until it has.
    fn reload(&mut self, session: &mut Session, connect: &ConnectOptions) -> Result<(), Problem> {
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        let before = session.query_value(LOADED)?;
        server.reload();
        let clock = Monotonic::start();
        let end = clock.now().after(RELOAD);
        // New sessions have what the postmaster has.
        while Session::connect(connect)?.query_value(LOADED)? == before {
            interrupt::check()?;
            if clock.now() > end {
                return Err(Problem::environment(format!(
                    "the running server does not take its new settings:\n{}",
                    server.log_tail()
                ))
                .hint("look for errors in postgresql.conf and postgresql.auto.conf"));
            }
            clock::pause(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Asks the server itself, in the database and as the user of the run.
    fn verify(plan: &Plan, connect: &ConnectOptions) -> Result<Verification, Problem> {
        let mut session = match Session::connect(connect) {
            // A server of an interrupted first start, without the database.
            Err(error) if error.is("3D000") => {
                make_database(Session::connect(&connect.with_database("postgres"))?)?;
                Session::connect(connect)?
            }
            other => other?,
        };
        settings::verify(&mut session, &plan.conf, &plan.wanted, &plan.understood)
    }

    /// Stops the server unless it stays; then only the run's settings are taken back.
    pub(crate) fn release(&mut self) -> Result<(), Problem> {
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        if !self.stays {
            return server.stop();
        }
        let path = self.cluster.directory.settings();
        match self.afterwards.take() {
            Some(text) if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) => {
                files::replace(&path, text.as_bytes(), 0o644)?;
                server.reload();
            }
            _ => {}
        }
        Ok(())
    }

    /// The port in force.
    pub(crate) fn port(&self) -> u16 {
        process::pid_file(&self.recipe.data_dir)
            .and_then(|file| file.port)
            .unwrap_or(self.cluster.description.port)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // Whoever wants to know calls release.
        let _ = self.release();
    }
}

/// The home may be full or not ours wherever it is written to; the remedy is the same.
fn with_hint(problem: Problem) -> Problem {
    let says = |words: &str| problem.message.contains(words);
    let hint = if problem.hint.is_some() {
        return problem;
    } else if says("No space left on device") || says("quota exceeded") {
        NO_SPACE
    } else if says("Read-only file system") || says("Permission denied") {
        "set PGDYNO_HOME to a directory that you may write to"
    } else {
        return problem;
    };
    problem.hint(hint)
}

/// The cluster's name and the build that fits it.
fn choose(
    places: &Places,
    request: &TargetRequest,
    user: &OsUser,
    progress: &mut dyn Progress,
) -> Result<(Directory, Build), Problem> {
    // Without a wish for a build, a cluster that exists goes on with its own.
    if request.pg.is_none() && request.pg_bindir.is_none() {
        let default = || format!("pg{NEWEST_MAJOR}");
        let name = request.cluster.clone().unwrap_or_else(default);
        let directory = Directory::new(&places.clusters, &name)?;
        if let Some(description) = directory.describe()? {
            let build = build_of(&description, places, user, progress)?;
            return Ok((directory, build));
        }
    }
    let named = request
        .cluster
        .as_deref()
        .map(|name| Directory::new(&places.clusters, name))
        .transpose()?;
    let build = Build::resolve(request, places, user, progress)?;
    let directory = match named {
        Some(directory) => directory,
        None => Directory::new(&places.clusters, &build.cluster_name())?,
    };
    Ok((directory, build))
}

/// The build that made an existing cluster, or one that can run it.
fn build_of(
    description: &Description,
    places: &Places,
    user: &OsUser,
    progress: &mut dyn Progress,
) -> Result<Build, Problem> {
    match description.origin {
        Origin::Installed => Build::installed(&description.bindir, user),
        Origin::Embedded => {
            let same = version::Version::parse(&description.version)
                .is_some_and(|version| archive::cached(&places.builds).contains(&version));
            let text = if same {
                &description.version
            } else {
                &description.major
            };
            Build::embedded(&version::Wanted::parse(text)?, places, user, progress)
        }
    }
}

fn plan(cluster: &Cluster, recipe: &Recipe, wanted: Wanted, keep: bool) -> Result<Plan, Problem> {
    let understood = settings::check(&recipe.build, &recipe.user, &recipe.data_dir, &wanted)?;
    let (conf, port) = conf(&cluster.directory, &cluster.description, &wanted)?;
    // A server that was asked to stay does so also when a run has to restart it.
    let kept = process::postmaster(&recipe.data_dir)
        .is_some_and(|file| cluster.description.kept == Some(file.pid));
    Ok(Plan {
        conf,
        wanted,
        understood,
        port,
        lifetime: if keep || kept {
            Lifetime::Detached
        } else {
            Lifetime::WithUs
        },
    })
}

/// `settings.conf` and the port in it.
fn conf(
    directory: &Directory,
    description: &Description,
    wanted: &Wanted,
) -> Result<(Conf, u16), Problem> {
    let port = match wanted.get("port") {
        Some(port) => port.trim().parse().map_err(|_| {
            Problem::usage(format!("--set port={port}: not a port"))
                .hint("use a number from 1024 to 65535")
        })?,
        None => description.port,
    };
    let base = [
        ("listen_addresses", String::new()),
        (
            "unix_socket_directories",
            directory.socket_dir().display().to_string(),
        ),
        ("port", port.to_string()),
    ];
    Ok((Conf::render(&base, wanted), port))
}

/// The port in a `settings.conf`; the last line wins.
fn port_in(text: &str) -> Option<u16> {
    text.lines().rev().find_map(|line| {
        line.strip_prefix("port = '")?
            .strip_suffix('\'')?
            .parse()
            .ok()
    })
}

fn make_database(mut session: Session) -> Result<(), Problem> {
    let sql = format!("SELECT count(*) FROM pg_catalog.pg_database WHERE datname = '{DATABASE}'");
    if session.query_value(&sql)?.as_deref() == Some("0") {
        session.query("SET default_transaction_read_only = off")?;
        session.query(&format!("CREATE DATABASE {DATABASE}"))?;
    }
    Ok(())
}

fn refuse(verification: &Verification) -> Result<(), Problem> {
    let Some((name, reason)) = verification.refused.first() else {
        return Ok(());
    };
    Err(
        Problem::usage(format!("--set {name}: not in force: {reason}")).hint(
            "a value from ALTER SYSTEM, ALTER DATABASE or ALTER ROLE wins over --set; RESET it there",
        ),
    )
}

/// Stops the cluster's server, if it runs.
pub(crate) fn bring_down(directory: Directory, progress: &mut dyn Progress) -> Result<(), Problem> {
    let mut cluster = Cluster::take(directory)?;
    let data_dir = cluster.directory.data();
    let stopped = match process::postmaster(&data_dir) {
        Some(file) => {
            progress.step(&format!("stopping the cluster {}", cluster.directory.name));
            Server::of(file.pid, &data_dir, &cluster.directory.log()).stop()
        }
        None => Ok(()),
    };
    super::server::end_orphans(&data_dir);
    if cluster.description.kept.take().is_some() {
        cluster.save()?;
    }
    stopped
}

/// A `psql` that can be run: beside the server, on the path, or Debian's newest.
pub(crate) fn find_psql(description: &Description) -> Result<std::path::PathBuf, Problem> {
    let beside = description.bindir.join("psql");
    if beside.is_file() {
        return Ok(beside);
    }
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .map(|directory| directory.join("psql"))
            .find(|psql| psql.is_file())
    });
    let debian = std::path::Path::new("/usr/lib/postgresql");
    let newest = || {
        let mut versions: Vec<String> = files::names(debian);
        versions.sort_by_key(|name| version::Version::parse(name));
        versions
            .into_iter()
            .rev()
            .map(|name| debian.join(name).join("bin/psql"))
            .find(|psql| psql.is_file())
    };
    on_path.or_else(newest).ok_or_else(|| {
        Problem::environment("there is no psql: the embedded builds do not have it").hint(
            "install a PostgreSQL client package (Debian: postgresql-client), or use the conninfo \
             of `pgdyno server status` with any other client",
        )
    })
}

/// Reads `PG_VERSION` of a data directory.
pub(crate) fn data_version(data_dir: &std::path::Path) -> Result<String, Problem> {
    let path = data_dir.join("PG_VERSION");
    std::fs::read_to_string(&path)
        .map(|text| text.trim().to_owned())
        .or_problem(format_args!("read {}", path.display()))
}
