//! `pgdyno server`: the managed PostgreSQL clusters.

use super::progress::Steps;
use super::{ready, say, say_json};
use crate::plan::args::{Format, OutputArgs, TargetArgs};
use crate::problem::{IoContext, Problem};
use crate::target::{self, ClusterStatus, Places};
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
            let places = Places::standard()?;
            let status = target::down(&places, args.name.as_deref(), &mut Steps::new())?;
            say(&format!("{} is {}", status.name, status.state));
        }
        ServerCommand::Status(output) => status(*output)?,
        ServerCommand::Psql(args) => return psql(args),
        ServerCommand::Versions(output) => versions(*output)?,
        ServerCommand::Rm(args) => {
            target::remove(&Places::standard()?, &args.name)?;
            say(&format!("removed {}", args.name));
        }
    }
    Ok(0)
}

fn up(args: &UpArgs) -> Result<(), Problem> {
    let request = ready::request(&args.target)?;
    let status = target::up(&Places::standard()?, &request, &mut Steps::new())?;
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
    let all = target::status(&Places::standard()?)?;
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

fn psql(args: &PsqlArgs) -> Result<u8, Problem> {
    let places = Places::standard()?;
    let mut command = target::psql_command(&places, args.cluster.as_deref())?;
    command.args(&args.arguments);
    // Replaces this process, so that psql has the terminal and its signals to itself.
    Err(command.exec()).or_problem("start psql")
}

fn versions(output: OutputArgs) -> Result<(), Problem> {
    let all = target::versions(&Places::standard()?, &mut Steps::new())?;
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
