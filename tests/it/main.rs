//! Integration tests; one file for each area.

mod dataset;
mod support;
