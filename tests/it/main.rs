//! Integration tests; one file for each area.

mod driver;
mod driver_cost;
mod support;
