//! Integration tests; one file for each area.

mod driver;
mod support;
