//! `pgdyno server`: the managed PostgreSQL clusters.

use super::progress::Steps;
use super::{ready, say, say_json};
use crate::plan::args::{Format, OutputArgs, TargetArgs};
use crate::problem::{IoContext, Problem};
use crate::target::{self, ClusterStatus};
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;

#[derive(Subcommand, Debug)]
pub(super) enum ServerCommand {
    /// Create the cluster if needed, start it, and leave it running
    #[command(after_help = "Examples:
  pgdyno server up
  pgdyno server up --pg 14 --cluster old --set shared_buffers=2GB")]
    Up(UpArgs),
    /// Stop a cluster
    Down(NameArgs),
    /// All clusters, running or not
    Status(OutputArgs),
    /// Open psql on a running cluster
    Psql(PsqlArgs),
    /// The PostgreSQL versions that can be fetched
    Versions(OutputArgs),
    /// Remove a stopped cluster and all its data
    Rm(RmArgs),
}

#[derive(Args, Debug)]
pub(super) struct UpArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args, Debug)]
pub(super) struct NameArgs {
    /// The cluster's name [default: the only one that runs]
    name: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct RmArgs {
    /// The cluster's name
    name: String,
}

#[derive(Args, Debug)]
pub(super) struct PsqlArgs {
    /// The cluster's name [default: the only one that runs]
    #[arg(long)]
    cluster: Option<String>,
    /// Arguments for psql, after --
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The whole command.
pub(super) fn server(command: &ServerCommand) -> Result<u8, Problem> {
    match command {
        ServerCommand::Up(args) => up(args)?,
        ServerCommand::Down(args) => {
            let name = running(args.name.as_deref())?;
            target::down(&name, &mut Steps::new())?;
            say(&format!("{name} is down"));
        }
        ServerCommand::Status(output) => status(*output)?,
        ServerCommand::Psql(args) => return psql(args),
        ServerCommand::Versions(output) => versions(*output)?,
        ServerCommand::Rm(args) => {
            target::remove(&args.name)?;
            say(&format!("removed {}", args.name));
        }
    }
    Ok(0)
}

fn up(args: &UpArgs) -> Result<(), Problem> {
    let request = ready::request(&args.target)?;
    if request.target.is_some() {
        return Err(
            Problem::usage("server up starts a managed cluster; --target is for others")
                .hint("pgdyno run tpcc --target … uses an existing server"),
        );
    }
    let status = target::up(&request, &mut Steps::new())?;
    match args.output.format {
        Format::Json => say_json(&status),
        Format::Text => {
            say(&format!(
                "{} is up: psql '{}'",
                status.name, status.conninfo
            ));
            Ok(())
        }
    }
}

fn status(output: OutputArgs) -> Result<(), Problem> {
    let all = target::status()?;
    if output.format == Format::Json {
        return say_json(&all);
    }
    let mut table = format!(
        "{:<16} {:<8} {:<8} {:>8}  conninfo\n",
        "name", "version", "state", "pid"
    );
    for ClusterStatus {
        name,
        version,
        state,
        pid,
        conninfo,
        ..
    } in &all
    {
        let pid = pid.map_or("-".to_owned(), |p| p.to_string());
        let _ = writeln!(
            table,
            "{name:<16} {version:<8} {state:<8} {pid:>8}  {conninfo}"
        );
    }
    say(&table);
    Ok(())
}

/// The cluster called `name`, or the only one that runs.
fn running(name: Option<&str>) -> Result<String, Problem> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let all = target::status()?;
    let up: Vec<&ClusterStatus> = all.iter().filter(|c| c.state == "running").collect();
    match up.as_slice() {
        [one] => Ok(one.name.clone()),
        [] => Err(Problem::usage("no managed cluster is running")
            .hint("pgdyno server status lists them; pgdyno server up starts one")),
        several => {
            let names: Vec<&str> = several.iter().map(|c| c.name.as_str()).collect();
            Err(
                Problem::usage(format!("{} clusters are running", several.len()))
                    .hint(format!("name one of: {}", names.join(", "))),
            )
        }
    }
}

fn psql(args: &PsqlArgs) -> Result<u8, Problem> {
    let name = running(args.cluster.as_deref())?;
    let mut command = target::psql_command(&name)?;
    command.args(&args.arguments);
    // Replaces this process, so that psql has the terminal and its signals to itself.
    Err(command.exec()).or_problem("start psql")
}

fn versions(output: OutputArgs) -> Result<(), Problem> {
    let all = target::versions(&mut Steps::new())?;
    if output.format == Format::Json {
        return say_json(&all);
    }
    let mut table = String::new();
    for version in &all {
        let cached = if version.cached { "  cached" } else { "" };
        let _ = writeln!(table, "{}{cached}", version.version);
    }
    say(&table);
    Ok(())
}
