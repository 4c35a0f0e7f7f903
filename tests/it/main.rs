//! Integration tests; one file for each area.

mod cli;
mod dataset;
mod driver;
mod faults;
mod session;
mod support;
mod target;
mod tpcc;
