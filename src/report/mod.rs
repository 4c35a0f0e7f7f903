//! What people and programs read, made from records only: it can always be made again.

pub mod json;
pub mod text;
