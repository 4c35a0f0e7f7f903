//! `pgdyno runs`: the store of run records.

use super::{run, say, say_json};
use crate::plan::args::{Format, OutputArgs};
use crate::problem::{IoContext, Problem};
use crate::record::store::{Store, Stored};
use crate::report::{json, text};
use crate::units::grouped;
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  pgdyno runs
  pgdyno runs show latest
  pgdyno runs export 3f9a -o run.tar.xz
  pgdyno runs rm 20261121T164414Z-tpcc-3f9a")]
pub(super) struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
    /// Where records are [default: runs in the home of pgdyno]
    #[arg(long, value_name = "DIR", global = true)]
    runs_dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Subcommand, Debug)]
enum RunsCommand {
    /// All runs, oldest first
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// The summary of a run with every verdict
    Show {
        /// An id, a part of it that is unique at its beginning or end, or `latest`
        #[arg(default_value = "latest")]
        run: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// The run's directory as one .tar.xz file
    Export {
        run: String,
        /// A new file [default: <id>.tar.xz here]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Remove runs
    Rm {
        #[arg(required = true)]
        run: Vec<String>,
    },
}

/// The whole command.
pub(super) fn runs(args: &RunsArgs) -> Result<u8, Problem> {
    let directory = run::runs_dir(args.runs_dir.as_ref())?;
    let store = Store::open_read_only(&directory);
    match &args.command {
        None => list(&store, args.output.format)?,
        Some(RunsCommand::List { output }) => list(&store, output.format)?,
        Some(RunsCommand::Show { run, output }) => show(&store.find(run)?, output.format)?,
        Some(RunsCommand::Export { run, output }) => export(&store.find(run)?, output.as_deref())?,
        Some(RunsCommand::Rm { run }) => {
            // Found all before the first is removed: a wrong name removes nothing.
            let doomed = run
                .iter()
                .map(|r| store.find(r))
                .collect::<Result<Vec<_>, _>>()?;
            for stored in &doomed {
                store.remove(stored)?;
                say(&format!("removed {}", stored.record.id));
            }
        }
    }
    Ok(0)
}

fn list(store: &Store, format: Format) -> Result<(), Problem> {
    let mut stored = Vec::new();
    let mut unread = Vec::new();
    for id in store.ids()? {
        match store.read(&id) {
            Ok(run) => stored.push(run),
            Err(problem) => unread.push(problem),
        }
    }
    match format {
        Format::Json => say_json(&stored.iter().map(json::line).collect::<Vec<_>>())?,
        Format::Text => say(&table(&stored)),
    }
    for problem in unread {
        super::note(&format!("pgdyno: {problem}"));
    }
    Ok(())
}

fn table(stored: &[Stored]) -> String {
    let mut out = format!(
        "{:<34} {:<21} {:<10} {:>10} {:>10} {:<8} labels\n",
        "run", "started", "workload", "NOPM", "tps", "verdict"
    );
    for run in stored {
        let line = json::line(run);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate, shown truncated as TPC-C 5.4.4 wants"
        )]
        let nopm = line.nopm.map_or("-".to_owned(), |n| grouped(n as u64));
        let labels: Vec<String> = line
            .labels
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        let _ = writeln!(
            out,
            "{:<34} {:<21} {:<10} {:>10} {:>10.1} {:<8} {}",
            line.run_id,
            line.started_at,
            line.workload,
            nopm,
            line.tps,
            text::status(line.verdict),
            labels.join(" ")
        );
    }
    out
}

fn show(stored: &Stored, format: Format) -> Result<(), Problem> {
    match format {
        Format::Json => say_json(&json::summary(&stored.record, &stored.directory)),
        Format::Text => {
            say(&text::summary(&stored.record, &stored.directory, true));
            Ok(())
        }
    }
}

fn export(stored: &Stored, output: Option<&Path>) -> Result<(), Problem> {
    let id = &stored.record.id;
    let default = PathBuf::from(format!("{id}.tar.xz"));
    let path = output.unwrap_or(&default);
    let what = || format!("write {}", path.display());
    if path.exists() {
        return Err(Problem::usage(format!("{} already exists", path.display()))
            .hint("choose another file with --output"));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let file = tempfile::NamedTempFile::new_in(parent).or_problem(what())?;
    let encoder = liblzma::write::XzEncoder::new(file, 6);
    let mut archive = tar::Builder::new(encoder);
    let mut file = archive
        .append_dir_all(id, &stored.directory)
        .and_then(|()| archive.into_inner())
        .and_then(liblzma::write::XzEncoder::finish)
        .or_problem(what())?;
    file.flush().or_problem(what())?;
    let file: File = file
        .persist_noclobber(path)
        .map_err(|e| e.error)
        .or_problem(what())?;
    file.sync_all().or_problem(what())?;
    say(&path.display().to_string());
    Ok(())
}
