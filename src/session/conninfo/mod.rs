//! How to reach a server: libpq's conninfo strings and URIs, environment, service and password
//! files, resolved into [`ConnectOptions`].

mod environment;
mod keywords;
mod resolve;
mod text;

use super::error::{Failure, SessionError};
use super::tls::Tls;
use super::{blocking, prompt};
use crate::problem::Problem;
use crate::wire::auth::{ChannelBinding, Method};
use environment::Environment;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
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

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostAddress::Tcp {
                host,
                addr: Some(addr),
            } if host.is_empty() => write!(f, "{addr}"),
            HostAddress::Tcp { host, .. } => f.write_str(host),
            HostAddress::Unix(directory) => write!(f, "{}", directory.display()),
        }
    }
}

/// libpq's `target_session_attrs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SessionKind {
    #[default]
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// A password; its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Everything needed to connect; no file or environment variable is read after this is made.
/// Clones share a password that was typed, so that it is asked for once.
#[derive(Clone)]
pub struct ConnectOptions {
    /// In the order in which they are tried, with their ports.
    pub hosts: Vec<(HostAddress, u16)>,
    pub user: String,
    pub database: String,
    pub ssl_mode: SslMode,
    pub application_name: String,
    /// Settings for the backend, as in `-c name=value`.
    pub options: Option<String>,
    /// For each address; `None` waits as long as the system does.
    pub connect_timeout: Option<Duration>,
    pub(super) channel_binding: ChannelBinding,
    /// What `require_auth` allows.
    pub(super) methods: Vec<Method>,
    pub(super) session_kind: SessionKind,
    /// Try hosts and addresses in random order.
    pub(super) shuffle: bool,
    /// The OS user that the server must run as, on Unix sockets.
    pub(super) require_peer: Option<String>,
    pub(super) uninterruptible: bool,
    /// `None` when no host can have TLS. An error of its files counts only when TLS begins.
    tls: Option<Arc<Result<Tls, Problem>>>,
    /// By index of the host.
    passwords: Vec<Option<Secret>>,
    typed: Arc<Mutex<Option<Secret>>>,
    /// What was odd on the way; told when it may explain an error.
    notes: Vec<String>,
    /// Other keywords that were given, for `conninfo`.
    more: Vec<(&'static str, String)>,
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnectOptions")
            .field(&self.conninfo())
            .finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// `--target`: a keyword string, a `postgresql://` URI, `env` for libpq's variables, or the
    /// name of a database. What the string leaves open comes from the service file, the
    /// environment, and libpq's defaults, in this order.
    ///
    /// # Errors
    /// Usage problems for what libpq would refuse too; environment problems for unreadable files.
    pub fn parse(target: &str) -> Result<ConnectOptions, Problem> {
        Self::parse_in(target, &Environment::of_process())
    }

    fn parse_in(target: &str, environment: &Environment) -> Result<ConnectOptions, Problem> {
        let given = match target.trim() {
            "" => {
                return Err(Problem::usage("the target is empty").hint(
                    "give a connection string, or env to use PGHOST, PGUSER and the other variables",
                ));
            }
            "env" => keywords::Values::default(),
            _ => text::parse(target)?,
        };
        resolve::resolve(given, environment)
    }

    /// A local server reached through a Unix socket in `directory`, trust authentication.
    pub fn unix(directory: &Path, port: u16, user: &str, database: &str) -> Self {
        Self {
            hosts: vec![(HostAddress::Unix(directory.to_owned()), port)],
            user: user.to_owned(),
            database: database.to_owned(),
            ssl_mode: SslMode::Disable,
            application_name: resolve::APPLICATION_NAME.to_owned(),
            options: None,
            connect_timeout: None,
            channel_binding: ChannelBinding::Prefer,
            methods: Method::ALL.to_vec(),
            session_kind: SessionKind::Any,
            shuffle: false,
            require_peer: None,
            uninterruptible: false,
            tls: None,
            passwords: vec![None],
            typed: Arc::default(),
            notes: Vec::new(),
            more: Vec::new(),
        }
    }

    /// The same server, another database.
    #[must_use]
    pub fn with_database(&self, database: &str) -> Self {
        let mut other = self.clone();
        database.clone_into(&mut other.database);
        other
    }

    /// The same, with a password for all hosts.
    #[must_use]
    pub fn with_password(&self, password: &str) -> Self {
        let mut other = self.clone();
        other.passwords = vec![Some(Secret(password.to_owned())); other.hosts.len()];
        other
    }

    /// Connecting, and the sessions made, ignore interrupts: for clean-up after one.
    #[must_use]
    pub fn uninterruptible(&self) -> Self {
        let mut other = self.clone();
        other.uninterruptible = true;
        other
    }

    /// Are all hosts on this machine: Unix sockets or loopback addresses?
    pub fn is_local(&self) -> bool {
        let loopback = |addr: &std::net::IpAddr| addr.is_loopback();
        self.hosts.iter().all(|(host, _)| match host {
            HostAddress::Unix(_) => true,
            HostAddress::Tcp {
                addr: Some(addr), ..
            } => loopback(addr),
            HostAddress::Tcp { host, addr: None } => {
                host == "localhost" || host.parse().is_ok_and(|addr| loopback(&addr))
            }
        })
    }

    /// For humans: `localhost:5432/db as user`.
    pub fn describe(&self) -> String {
        let hosts: Vec<_> = self
            .hosts
            .iter()
            .map(|(host, port)| place(host, *port))
            .collect();
        format!("{}/{} as {}", hosts.join(","), self.database, self.user)
    }

    /// A keyword string that `psql` takes, without the password.
    pub fn conninfo(&self) -> String {
        let list = |entry: &dyn Fn(&(HostAddress, u16)) -> String| -> String {
            self.hosts.iter().map(entry).collect::<Vec<_>>().join(",")
        };
        let host = list(&|(host, _)| match host {
            HostAddress::Tcp { host, .. } => host.clone(),
            HostAddress::Unix(_) => host.to_string(),
        });
        let addr = list(&|(host, _)| match host {
            HostAddress::Tcp {
                addr: Some(addr), ..
            } => addr.to_string(),
            _ => String::new(),
        });
        let mut pairs = vec![("host", host)];
        if addr.chars().any(|c| c != ',') {
            pairs.push(("hostaddr", addr));
        }
        pairs.push(("port", list(&|(_, port)| port.to_string())));
        pairs.push(("user", self.user.clone()));
        pairs.push(("dbname", self.database.clone()));
        pairs.extend(self.more.iter().cloned());
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| format!("{name}={}", quoted(value)))
            .collect();
        pairs.join(" ")
    }

    /// What to use for TLS on TCP.
    pub(super) fn tls(&self) -> Result<&Tls, SessionError> {
        let tls = self.tls.as_deref().ok_or_else(|| {
            SessionError::new(
                Failure::Disconnected,
                "TLS is switched off (sslmode=disable)",
            )
        })?;
        tls.as_ref().map_err(|problem| SessionError {
            failure: Failure::Disconnected,
            sqlstate: None,
            message: problem.message.clone(),
            hint: problem.hint.clone(),
        })
    }

    /// The password for a host: given, from the password file, or typed.
    pub(super) fn password(&self, host: usize) -> Option<Secret> {
        let known = self.passwords.get(host).cloned().flatten();
        known.or_else(|| {
            self.typed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        })
    }

    /// Asks for the password on the terminal, unless another thread just did.
    pub(super) fn ask_password(&self) -> Result<(), SessionError> {
        let mut typed = self.typed.lock().unwrap_or_else(PoisonError::into_inner);
        if typed.is_some() {
            return Ok(());
        }
        let missing = || {
            let message = format!("the server wants a password for user \"{}\"", self.user);
            let mut error = SessionError::new(Failure::Disconnected, message);
            let mut hints = self.notes.clone();
            hints.push("set PGPASSWORD, or add a line to ~/.pgpass".to_owned());
            error.hint = Some(hints.join("; "));
            error
        };
        let terminal = prompt::terminal().ok_or_else(missing)?;
        let question = format!("Password for user {}: ", self.user);
        match prompt::password(terminal, &question) {
            Ok(Some(password)) if !password.is_empty() => {
                *typed = Some(Secret(password));
                Ok(())
            }
            Ok(None) => Err(blocking::interrupted()),
            _ => Err(missing()),
        }
    }
}

impl Secret {
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

/// Host and port for humans.
pub(super) fn place(host: &HostAddress, port: u16) -> String {
    match host {
        HostAddress::Tcp { host, .. } if host.contains(':') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    }
}

/// A value as conninfo strings want it.
fn quoted(value: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && c != '\'' && c != '\\';
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}
