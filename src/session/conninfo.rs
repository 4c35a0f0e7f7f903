//! How to reach a server: libpq's conninfo strings and URIs, environment, service and password
//! files, resolved into [`ConnectOptions`].

use crate::problem::Problem;
use crate::wire::auth::{ChannelBinding, Method};
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
#[derive(Clone)]
pub struct ConnectOptions {
    pub hosts: Vec<(HostAddress, u16)>,
    pub user: String,
    pub database: String,
    password: Option<String>,
    pub ssl_mode: SslMode,
    pub application_name: String,
    pub options: Option<String>,
    pub connect_timeout: Option<Duration>,
    pub(super) channel_binding: ChannelBinding,
    pub(super) methods: Vec<Method>,
}

impl std::fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConnectOptions({})", self.conninfo())
    }
}

impl ConnectOptions {
    /// `--target`: a keyword string, a `postgresql://` URI, or `env` for libpq's variables.
    pub fn parse(target: &str) -> Result<ConnectOptions, Problem> {
        let mut host = "localhost".to_owned();
        let mut port = 5432;
        let mut user = "postgres".to_owned();
        let mut database = None;
        let mut password = None;
        for pair in target.split_whitespace() {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(Problem::usage(format!("missing \"=\" after \"{pair}\"")));
            };
            match name {
                "host" => value.clone_into(&mut host),
                "port" => {
                    port = value
                        .parse()
                        .map_err(|_| Problem::usage(format!("\"{value}\" is not a port")))?;
                }
                "user" => value.clone_into(&mut user),
                "dbname" => database = Some(value.to_owned()),
                "password" => password = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut options = Self::unix(std::path::Path::new(&host), port, &user, &user);
        if !host.starts_with('/') {
            options.hosts = vec![(HostAddress::Tcp { host, addr: None }, port)];
        }
        options.database = database.unwrap_or(user);
        options.password = password;
        Ok(options)
    }

    /// A local server reached through a Unix socket in `directory`, trust authentication.
    pub fn unix(directory: &std::path::Path, port: u16, user: &str, database: &str) -> Self {
        Self {
            hosts: vec![(HostAddress::Unix(directory.to_owned()), port)],
            user: user.to_owned(),
            database: database.to_owned(),
            password: None,
            ssl_mode: SslMode::Prefer,
            application_name: "pgdyno".to_owned(),
            options: None,
            connect_timeout: None,
            channel_binding: ChannelBinding::Prefer,
            methods: Method::ALL.to_vec(),
        }
    }

    /// The same server, another database.
    #[must_use]
    pub fn with_database(&self, database: &str) -> Self {
        let mut other = self.clone();
        database.clone_into(&mut other.database);
        other
    }

    pub(super) fn password(&self, _host: usize) -> Option<&str> {
        self.password.as_deref()
    }

    /// Are all hosts on this machine: Unix sockets or loopback addresses?
    pub fn is_local(&self) -> bool {
        self.hosts.iter().all(|(host, _)| match host {
            HostAddress::Unix(_) => true,
            HostAddress::Tcp {
                addr: Some(addr), ..
            } => addr.is_loopback(),
            HostAddress::Tcp { host, addr: None } => {
                host == "localhost"
                    || host
                        .parse::<std::net::IpAddr>()
                        .is_ok_and(|addr| addr.is_loopback())
            }
        })
    }

    /// For humans: `localhost:5432/db as user`.
    pub fn describe(&self) -> String {
        let hosts: Vec<_> = self
            .hosts
            .iter()
            .map(|(host, port)| match host {
                HostAddress::Tcp { host, .. } => format!("{host}:{port}"),
                HostAddress::Unix(path) => format!("{}:{port}", path.display()),
            })
            .collect();
        format!("{}/{} as {}", hosts.join(","), self.database, self.user)
    }

    /// A keyword string that `psql` takes, without the password.
    pub fn conninfo(&self) -> String {
        let hosts: Vec<_> = self
            .hosts
            .iter()
            .map(|(host, _)| match host {
                HostAddress::Tcp { host, .. } => host.clone(),
                HostAddress::Unix(path) => path.display().to_string(),
            })
            .collect();
        let ports: Vec<_> = self
            .hosts
            .iter()
            .map(|(_, port)| port.to_string())
            .collect();
        format!(
            "host={} port={} user={} dbname={}",
            quoted(&hosts.join(",")),
            ports.join(","),
            quoted(&self.user),
            quoted(&self.database)
        )
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
