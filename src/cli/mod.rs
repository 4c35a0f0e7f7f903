//! The command line: one function per subcommand; the only place that prints.

mod check;
mod drop;
mod load;
mod progress;
mod ready;
mod run;
mod runs;
mod scrub;
mod server;
mod watch;

use crate::interrupt;
use crate::plan::args::{MeasureArgs, OutputArgs, TargetArgs, WorkloadArgs};
use crate::problem::Problem;
use clap::{CommandFactory, Parser, Subcommand};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// A dynamometer for PostgreSQL.
///
/// Puts a PostgreSQL on the rollers and measures it honestly: how fast it is, and how far the
/// number can be trusted. Without --target it fetches and runs a PostgreSQL of its own.
#[derive(Parser, Debug)]
#[command(
    name = "pgdyno",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(after_help = "Examples:
  pgdyno run tpcc                             embedded PostgreSQL, 10 warehouses, 60 s
  pgdyno run tpcc -w 100 -c 32 -t 10m --set shared_buffers=4GB
  pgdyno run tpcc --pg 14 --keying-think      an older PostgreSQL, paced as the standard says
  pgdyno run tpcc --target 'host=db1 dbname=bench user=bench' --format json

Exit codes: 0 done, 1 a check found violations, 2 wrong usage or plan, 3 environment,
4 the run is invalid, 70 a defect in pgdyno, 130 interrupted.")]
struct App {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create, start, stop and find the managed PostgreSQL clusters
    #[command(subcommand)]
    Server(server::ServerCommand),
    /// Create the schema and load the data set in parallel
    Load(LoadArgs),
    /// Measure: target ready, data loaded if absent, ramp-up, measurement, checks, record
    Run(RunArgs),
    /// Check the invariants of a data set
    Check(DataArgs),
    /// Remove what `load` made
    Drop(DataArgs),
    /// The store of run records
    Runs(runs::RunsArgs),
    /// Print a completion script for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  pgdyno run tpcc -w 2 -t 20s
  pgdyno run tpcc -w 50 -c 16 --isolation rr --set synchronous_commit=off
  pgdyno run synthetic --terminals 10000 --keying-think -c 8
  pgdyno run tpcc --target env --format json > result.json")]
struct RunArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    measure: MeasureArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Where records go [default: runs in the home of pgdyno]
    #[arg(long, value_name = "DIR")]
    runs_dir: Option<PathBuf>,
    /// Print every verdict, also those that pass
    #[arg(short, long)]
    verbose: bool,
}

#[derive(clap::Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_help = "Examples:
  pgdyno load tpcc -w 100 -c 8
  pgdyno load tpcc -w 100 --resume
  pgdyno load tpcc -w 1 --csv-dir /data/tpcc-csv")]
struct LoadArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Continue a load that was cut short
    #[arg(long, conflicts_with = "drop")]
    resume: bool,
    /// Remove the data set that an earlier load made, first
    #[arg(long)]
    drop: bool,
    /// Write the data as CSV files into this new or empty directory instead
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "drop", "target", "pg", "pg_bindir"])]
    csv_dir: Option<PathBuf>,
    /// Load although the database holds things that pgdyno did not create
    #[arg(long)]
    beside_others: bool,
    /// Do not check the invariants after loading
    #[arg(long)]
    no_check: bool,
}

#[derive(clap::Args, Debug)]
struct DataArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Parses, runs, prints a problem; returns the exit code.
pub fn main() -> u8 {
    scrub::passwords_from_process_title();
    let app = match App::try_parse() {
        Ok(app) => app,
        Err(error) => {
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    if let Err(error) = interrupt::install() {
        complain(&Problem::environment(format!(
            "cannot install signal handlers: {error}"
        )));
        return 3;
    }
    let result = std::panic::catch_unwind(|| dispatch(app.command));
    match result {
        Ok(Ok(code)) => code,
        Ok(Err(problem)) => {
            complain(&problem);
            problem.exit_code()
        }
        // The panic's own message is on stderr already; servers were stopped while unwinding.
        Err(_) => {
            complain(
                &Problem::defect("pgdyno stopped because of a defect of its own")
                    .hint("please report it with the message above and the command"),
            );
            70
        }
    }
}

fn dispatch(command: Command) -> Result<u8, Problem> {
    match command {
        Command::Server(args) => server::server(&args),
        Command::Load(args) => load::load(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::check(&args),
        Command::Drop(args) => drop::drop(&args),
        Command::Runs(args) => runs::runs(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut App::command(), "pgdyno", &mut script);
            say(&String::from_utf8_lossy(&script));
            Ok(0)
        }
        Command::Man => {
            say(&manual()?);
            Ok(0)
        }
    }
}

fn manual() -> Result<String, Problem> {
    let mut page = Vec::new();
    let render = |command: clap::Command, page: &mut Vec<u8>| {
        clap_mangen::Man::new(command)
            .render(page)
            .map_err(|e| Problem::defect(format!("the manual page cannot be made: {e}")))
    };
    let app = App::command();
    render(app.clone(), &mut page)?;
    for command in app.get_subcommands() {
        let name = format!("pgdyno-{}", command.get_name());
        render(command.clone().name(name), &mut page)?;
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Writes a result to stdout. A closed pipe (`| head`) is not an error.
fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = stdout.write_all(b"\n");
    }
    let _ = stdout.flush();
}

/// Writes a JSON result to stdout.
fn say_json<T: serde::Serialize>(value: &T) -> Result<(), Problem> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Problem::defect(format!("the result does not serialise: {e}")))?;
    say(&text);
    Ok(())
}

/// Writes a remark to stderr.
fn note(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{text}");
}

fn complain(problem: &Problem) {
    note(&format!("pgdyno: {problem}"));
}

fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// The reference of commands and flags, generated for `docs/reference/cli.md`.
pub fn reference() -> String {
    use std::fmt::Write as _;
    let mut page =
        String::from("# Commands\n\nThis page is generated from the program's own `--help`.\n");
    let mut app = App::command().max_term_width(100).term_width(100);
    app.build();
    let mut queue: Vec<(String, clap::Command)> = vec![("pgdyno".to_owned(), app)];
    while let Some((name, mut command)) = queue.pop() {
        let help = command.render_long_help().to_string();
        // What the defaults depend on differs between machines and must not be in the page.
        let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
        let mut children: Vec<(String, clap::Command)> = command
            .get_subcommands()
            .filter(|c| c.get_name() != "help")
            .map(|c| (format!("{name} {}", c.get_name()), c.clone()))
            .collect();
        children.reverse();
        queue.extend(children);
    }
    page
}
