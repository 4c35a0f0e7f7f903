//! How much memory a session may use.

use super::sql::literal;
use crate::session::{Session, SessionError};

/// A fair share of memory for one of `sessions`: an eighth of this host's memory when the server
/// runs on it, else half of the server's `shared_buffers`; never less than the setting `name`
/// already is.
pub(super) fn share(
    session: &mut Session,
    name: &str,
    sessions: usize,
) -> Result<u64, SessionError> {
    let current = setting(session, name)?;
    let all = if session.host().starts_with(['/', '@']) {
        let info = rustix::system::sysinfo();
        (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)) / 8
    } else {
        setting(session, "shared_buffers")? / 2
    };
    Ok(current.max(all / (sessions.max(1) as u64)))
}

/// A setting of size, in bytes.
pub(super) fn setting(session: &mut Session, name: &str) -> Result<u64, SessionError> {
    let sql = format!("SELECT pg_size_bytes(current_setting({}))", literal(name));
    let value = session.query_value(&sql)?;
    Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
}
