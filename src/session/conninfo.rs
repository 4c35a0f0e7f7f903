//! How to reach a server: libpq's conninfo strings and URIs, environment, service and password
//! files, resolved into [`ConnectOptions`].

use crate::problem::Problem;
use std::path::PathBuf;
use std::time::Duration;

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// One host to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAddress {
    /// Name or address, as the user wrote it, and `hostaddr` when given.
    Tcp {
        host: String,
        addr: Option<std::net::IpAddr>,
    },
    /// A directory with `.s.PGSQL.<port>`; starts with `/`, or `@` for the abstract namespace.
    Unix(PathBuf),
}

/// Everything needed to connect; no file or environment variable is read after this is made.
/// Its `Debug` form must never show the password (helper: implement by hand).
#[derive(Clone)]
pub struct ConnectOptions {
    pub hosts: Vec<(HostAddress, u16)>,
    pub user: String,
    pub database: String,
    /// One password for each host may come from `.pgpass`; helper decides the representation.
    pub password: Option<String>,
    pub ssl_mode: SslMode,
    pub application_name: String,
    pub options: Option<String>,
    pub connect_timeout: Option<Duration>,
}

impl ConnectOptions {
    /// `--target`: a keyword string, a `postgresql://` URI, or `env` for libpq's variables.
    pub fn parse(target: &str) -> Result<ConnectOptions, Problem> {
        let _ = target;
        todo!()
    }

    /// A local server reached through a Unix socket in `directory`, trust authentication.
    pub fn unix(directory: &std::path::Path, port: u16, user: &str, database: &str) -> Self {
        let _ = (directory, port, user, database);
        todo!()
    }

    pub fn describe(&self) -> String {
        todo!()
    }

    pub fn is_local(&self) -> bool {
        todo!()
    }

    /// A keyword string that `psql` takes, without the password.
    pub fn conninfo(&self) -> String {
        todo!()
    }
}
