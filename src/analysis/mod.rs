//! Pure functions over records: is this run valid, and what does it say.

pub mod durability;
pub mod figures;
pub mod verdicts;
