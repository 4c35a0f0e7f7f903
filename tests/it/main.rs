//! Integration tests; one file for each area.

mod support;
