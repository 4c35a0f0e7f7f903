//! Integration tests; one file for each area.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "this is all test code, helpers included"
)]

mod session;
mod support;
mod target;
