//! PostgreSQL's protocol 3 as bytes; no I/O.
//!
//! helper: frontend.rs (messages we send, golden bytes), backend.rs (messages we read, every
//! truncation says "need more"), value.rs (binary int/numeric/text/timestamp/arrays), auth.rs.
