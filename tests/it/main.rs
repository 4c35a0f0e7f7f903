//! Integration tests; one file for each area.

mod driver;
mod driver_cost;
mod driver_server;
mod session;
mod support;
