//! `pgdyno`: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pgdyno::cli::main())
}
