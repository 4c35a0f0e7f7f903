//! Integration tests; one file for each area.

mod session;
mod support;
mod tpcc;
