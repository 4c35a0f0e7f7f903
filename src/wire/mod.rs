//! PostgreSQL's protocol 3.0 as bytes; no I/O.
//!
//! | module | what it is |
//! |---|---|
//! | [`frontend`] | messages we send, appended to a reused buffer |
//! | [`backend`] | messages we read, borrowed from the receive buffer |
//! | [`value`] | binary forms of the values of parameters and rows |
//! | [`numeric`] | `numeric` as a scaled integer, exactly |
//! | [`auth`] | the conversation of authentication |

pub mod auth;
pub mod backend;
pub mod frontend;
pub mod numeric;
pub mod value;

/// Bytes that the protocol does not allow: the connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {what} from the server")]
pub struct Malformed {
    /// The message or field at fault.
    pub what: &'static str,
}

impl Malformed {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what }
    }
}
