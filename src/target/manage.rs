//! What `pgdyno server` does: up, down, status, versions, remove, psql.

use super::archive;
use super::builds::Origin;
use super::cluster::{Cluster, DATABASE, Description, Directory, no_cluster};
use super::home::Places;
use super::managed::{self, Managed, Purpose};
use super::{ClusterStatus, Progress, TargetRequest, VersionInfo, files, process};
use crate::problem::Problem;
use std::process::Command;

/// Creates and starts a cluster, and leaves it running. Settings in the request become the
/// cluster's own, in place of those that it had; without any it keeps what it had.
pub fn up(
    places: &Places,
    request: &TargetRequest,
    progress: &mut dyn Progress,
) -> Result<ClusterStatus, Problem> {
    if request.target.is_some() {
        return Err(
            Problem::usage("--target names a server that pgdyno does not manage")
                .hint("leave --target away to start a managed server"),
        );
    }
    let managed = Managed::bring_up(places, request, Purpose::Up, progress)?;
    Ok(look_at(&managed.cluster.directory))
}

/// Stops a cluster's server; without a name the only one that runs.
pub fn down(
    places: &Places,
    name: Option<&str>,
    progress: &mut dyn Progress,
) -> Result<ClusterStatus, Problem> {
    let directory = pick(places, name, "stop")?;
    managed::bring_down(directory.clone(), progress)?;
    Ok(look_at(&directory))
}

/// All clusters by name, without starting anything.
pub fn status(places: &Places) -> Result<Vec<ClusterStatus>, Problem> {
    Ok(files::names(&places.clusters)
        .iter()
        .filter_map(|name| Directory::new(&places.clusters, name).ok())
        .filter(|directory| !matches!(directory.describe(), Ok(None)))
        .map(|directory| look_at(&directory))
        .collect())
}

/// The versions that can be fetched and those that have been, ascending.
pub fn versions(places: &Places, progress: &mut dyn Progress) -> Result<Vec<VersionInfo>, Problem> {
    let versions = archive::versions(places, progress)?;
    Ok(versions
        .into_iter()
        .map(|(version, cached)| VersionInfo {
            version: version.to_string(),
            cached,
        })
        .collect())
}

/// Deletes a stopped cluster that pgdyno made, with all its data.
pub fn remove(places: &Places, name: &str) -> Result<(), Problem> {
    let directory = Directory::new(&places.clusters, name)?;
    Cluster::take(directory)?.delete()
}

/// `psql`, connected to a running cluster; without a name the only one that runs.
pub fn psql_command(places: &Places, name: Option<&str>) -> Result<Command, Problem> {
    let directory = pick(places, name, "connect to")?;
    let description = directory
        .describe()?
        .ok_or_else(|| no_cluster(&directory.name))?;
    let status = look_at(&directory);
    if status.state != "running" {
        return Err(Problem::environment(format!(
            "the cluster {} is {}",
            status.name, status.state
        ))
        .hint(format!(
            "start it: pgdyno server up --cluster {}",
            status.name
        )));
    }
    let mut command = Command::new(managed::find_psql(&description)?);
    command.arg(status.conninfo);
    Ok(command)
}

/// The named cluster, or the only one that runs.
fn pick(places: &Places, name: Option<&str>, verb: &str) -> Result<Directory, Problem> {
    if let Some(name) = name {
        let directory = Directory::new(&places.clusters, name)?;
        return match directory.describe() {
            Ok(None) => Err(no_cluster(name)),
            _ => Ok(directory),
        };
    }
    let running: Vec<String> = status(places)?
        .into_iter()
        .filter(|status| status.state == "running")
        .map(|status| status.name)
        .collect();
    match &running[..] {
        [name] => Directory::new(&places.clusters, name),
        [] => Err(
            Problem::usage(format!("there is no running cluster to {verb}"))
                .hint("`pgdyno server status` lists the clusters, `pgdyno server up` starts one"),
        ),
        several => Err(Problem::usage(format!(
            "several clusters are running: {}",
            several.join(", ")
        ))
        .hint("name one of them")),
    }
}

/// Reads a cluster's state from its files and from `/proc`.
fn look_at(directory: &Directory) -> ClusterStatus {
    let data = directory.data();
    let server = process::postmaster(&data);
    let description = directory.describe();
    let (version, home_port, state) = match &description {
        Ok(Some(description)) => (
            description.version.clone(),
            description.port,
            state(directory, description),
        ),
        _ => (String::new(), 0, "broken"),
    };
    let port = server
        .as_ref()
        .and_then(|server| server.port)
        .unwrap_or(home_port);
    ClusterStatus {
        name: directory.name.clone(),
        version,
        state: state.to_owned(),
        conninfo: directory.connect(port, DATABASE).conninfo(),
        data_dir: data.display().to_string(),
        port,
        pid: server.map(|server| server.pid),
    }
}

fn state(directory: &Directory, description: &Description) -> &'static str {
    let data = directory.data();
    if process::postmaster(&data).is_some() {
        return "running";
    }
    // Described but not yet created, or its creation was interrupted: the next start makes it.
    if !data.exists() {
        return "stopped";
    }
    let right_version = managed::data_version(&data).is_ok_and(|v| v == description.major);
    let runnable =
        description.origin == Origin::Embedded || description.bindir.join("postgres").exists();
    if !right_version || !runnable || !data.join("global/pg_control").exists() {
        "broken"
    } else if process::shut_down_cleanly(&data) {
        "stopped"
    } else {
        "crashed"
    }
}
