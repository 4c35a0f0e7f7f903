//! Integration tests; one file for each area.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is all test code, helpers included"
)]

mod cli;
mod dataset;
mod driver;
mod driver_cost;
mod driver_server;
mod faults;
mod session;
mod support;
mod target;
