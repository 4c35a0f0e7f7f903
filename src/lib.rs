//! pgdyno: a dynamometer for PostgreSQL.
//!
//! The modules in the order in which data flows through them:
//!
//! | module | what it is |
//! |---|---|
//! | [`plan`] | what was asked, validated and complete; the only place where defaults live |
//! | [`target`] | the server under test: fetched, found or given; from plan to running and back |
//! | [`workload`] | tables, profiles, inputs and statements of what is run |
//! | [`catalog`] | the registry of workloads, bound to the driver |
//! | [`dataset`] | the initial data: loaded once, marked, checked, dropped |
//! | [`driver`] | the hot loop: sessions, terminals, pacing, counting |
//! | [`observe`] | what server and host did meanwhile |
//! | [`record`] | everything known about one run, stored atomically |
//! | [`analysis`] | pure functions over records: verdicts on validity, estimates |
//! | [`report`] | text, JSON and HTML from records only |
//! | [`cli`] | one function per subcommand |
//!
//! Leaves that everybody may use: [`clock`], [`interrupt`], [`problem`], [`rng`], [`units`].
//! Below the target and the workloads lie [`session`] (one connection) and [`wire`] (the protocol
//! as bytes); [`host`] reads the machine's facts.

pub mod analysis;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod dataset;
pub mod driver;
pub mod host;
pub mod interrupt;
pub mod observe;
pub mod plan;
pub mod problem;
pub mod record;
pub mod report;
pub mod rng;
pub mod session;
pub mod target;
pub mod units;
pub mod wire;
pub mod workload;
