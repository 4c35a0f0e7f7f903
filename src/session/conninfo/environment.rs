//! What libpq takes from the process and its user: variables, home directory, the user's name;
//! and the files found through them.

use super::keywords::Values;
use crate::problem::Problem;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where Debian's libpq looks for the system's service file.
const SYSCONFDIR: &str = "/etc/postgresql-common";

/// The surroundings of a connection string; tests make their own.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    pub(super) variables: BTreeMap<String, String>,
    pub(super) home: Option<PathBuf>,
    pub(super) os_user: Option<String>,
}

impl Environment {
    /// That of this process. Variables that are not UTF-8 are left out.
    pub(super) fn of_process() -> Self {
        let variables: BTreeMap<_, _> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("PG"))
            .collect();
        let account = super::super::account::by_uid(rustix::process::geteuid().as_raw());
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
        Self {
            variables,
            home: home
                .map(PathBuf::from)
                .or(account.as_ref().map(|account| account.home.clone())),
            os_user: account.map(|account| account.name),
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(super) fn in_home(&self, path: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(path))
    }

    /// Adds what the service `name` says to `values`, where nothing was given
    /// (`parseServiceInfo` in fe-connect.c).
    pub(super) fn apply_service(&self, name: &str, values: &mut Values) -> Result<(), Problem> {
        let named = values
            .get("servicefile")
            .or(self.variable("PGSERVICEFILE"))
            .map(PathBuf::from);
        let system = self.variable("PGSYSCONFDIR").unwrap_or(SYSCONFDIR);
        let files = [
            named.clone().or(self.in_home(".pg_service.conf")),
            Some(Path::new(system).join("pg_service.conf")),
        ];
        for file in files.into_iter().flatten() {
            let text = match std::fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error)
                    if error.kind() == ErrorKind::NotFound && named.as_ref() != Some(&file) =>
                {
                    continue;
                }
                Err(error) => {
                    return Err(Problem::environment(format!(
                        "cannot read the service file {}: {error}",
                        file.display()
                    )));
                }
            };
            let found = apply_section(&text, name, values)
                .map_err(|problem| problem.context(file.display()))?;
            if found {
                return Ok(());
            }
        }
        Err(Problem::usage(format!(
            "service \"{name}\" is not defined in any service file"
        ))
        .hint("define it in ~/.pg_service.conf, or name the file in PGSERVICEFILE"))
    }
}

/// Reads section `[name]`; `false` when there is none.
fn apply_section(text: &str, name: &str, values: &mut Values) -> Result<bool, Problem> {
    let mut found = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            if found {
                break;
            }
            found = section.strip_suffix(']') == Some(name);
            continue;
        }
        if !found {
            continue;
        }
        let at = |problem: Problem| problem.context(format!("line {}", index + 1));
        let (keyword, value) = line
            .split_once('=')
            .ok_or_else(|| at(Problem::usage(format!("missing \"=\" in \"{line}\""))))?;
        if matches!(keyword, "service" | "servicefile") {
            return Err(at(Problem::usage("a service cannot name another service")));
        }
        values.set_default(keyword, value.to_owned()).map_err(at)?;
    }
    Ok(found)
}

/// The lines of a password file, or why it was ignored.
pub(super) fn password_file(path: &Path) -> Result<Vec<PasswordLine>, Option<String>> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(None),
        Err(error) => return Err(Some(format!("{} cannot be read: {error}", path.display()))),
    };
    if !metadata.is_file() {
        return Err(Some(format!("{} is not a plain file", path.display())));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(Some(format!(
            "{} was ignored because others can read it (chmod 0600)",
            path.display()
        )));
    }
    let text = std::fs::read(path)
        .map_err(|error| Some(format!("{} cannot be read: {error}", path.display())))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(PasswordLine::parse).collect())
}

/// `host:port:database:user:password`; each of the first four may be `*`.
pub(super) struct PasswordLine([Option<String>; 4], String);

impl PasswordLine {
    fn parse(line: &str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let mut fields = Vec::new();
        let mut field = String::new();
        let mut escaped = false;
        let mut chars = line.chars();
        while fields.len() < 4 {
            match chars.next()? {
                '\\' => {
                    field.push(chars.next()?);
                    escaped = true;
                }
                ':' => {
                    let wildcard = field == "*" && !escaped;
                    let text = std::mem::take(&mut field);
                    fields.push((!wildcard).then_some(text));
                    escaped = false;
                }
                c => field.push(c),
            }
        }
        let mut password = String::new();
        while let Some(c) = chars.next() {
            match c {
                '\\' => password.extend(chars.next()),
                // Fields after the password are for the future.
                ':' => break,
                c => password.push(c),
            }
        }
        Some(Self(fields.try_into().ok()?, password))
    }

    /// The password, when the line is for this host (any of these names), port, database, user.
    pub(super) fn matching(&self, hosts: &[&str], rest: [&str; 3]) -> Option<&str> {
        let [host, others @ ..] = &self.0;
        let host_fits = host.as_deref().is_none_or(|host| hosts.contains(&host));
        let fits = others
            .iter()
            .zip(rest)
            .all(|(pattern, value)| pattern.as_deref().is_none_or(|pattern| pattern == value));
        (host_fits && fits).then_some(self.1.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_password_file_have_wildcards_and_escapes() {
        for (line, host, password) in [
            ("h:5432:d:u:secret", "h", Some("secret")),
            ("*:*:*:*:secret", "h", Some("secret")),
            ("h:5432:d:other:secret", "h", None),
            ("h:1:d:u:secret", "h", None),
            ("other:5432:d:u:secret", "h", None),
            (r"\:\:1:5432:d:u:a\:b\\c", "::1", Some(r"a:b\c")),
            (r"\*:5432:d:u:secret", "h", None),
            ("h:5432:d:u:", "h", Some("")),
            ("h:5432:d:u", "h", None),
            ("# h:5432:d:u:secret", "h", None),
            ("", "h", None),
        ] {
            let found = PasswordLine::parse(line);
            let found = found
                .as_ref()
                .and_then(|l| l.matching(&[host], ["5432", "d", "u"]));
            assert_eq!(found, password, "{line}");
        }
    }
}
