//! The keywords of connection strings, as libpq of PostgreSQL 18 knows them (`PQconninfoOptions`
//! in fe-connect.c), and the values given for them.

use crate::problem::Problem;
use std::collections::BTreeMap;

/// What a keyword does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Used,
    /// Accepted and without effect: it asks for nothing that would be missed.
    Ignored,
    /// Only these values are accepted, for this reason.
    Only(&'static [&'static str], &'static str),
}

/// A keyword of connection strings.
#[derive(Debug)]
pub(super) struct Keyword {
    pub(super) name: &'static str,
    /// The environment variable of its default.
    pub(super) variable: Option<&'static str>,
    effect: Effect,
}

const fn used(name: &'static str, variable: &'static str) -> Keyword {
    Keyword {
        name,
        variable: Some(variable),
        effect: Effect::Used,
    }
}

const fn ignored(name: &'static str, variable: Option<&'static str>) -> Keyword {
    Keyword {
        name,
        variable,
        effect: Effect::Ignored,
    }
}

const fn only(
    name: &'static str,
    variable: Option<&'static str>,
    values: &'static [&'static str],
    reason: &'static str,
) -> Keyword {
    Keyword {
        name,
        variable,
        effect: Effect::Only(values, reason),
    }
}

/// Sorted by name.
pub(super) static KEYWORDS: &[Keyword] = &[
    used("application_name", "PGAPPNAME"),
    used("channel_binding", "PGCHANNELBINDING"),
    // Text goes over the wire as UTF-8, whatever the database stores.
    ignored("client_encoding", Some("PGCLIENTENCODING")),
    used("connect_timeout", "PGCONNECT_TIMEOUT"),
    used("dbname", "PGDATABASE"),
    Keyword {
        name: "fallback_application_name",
        variable: None,
        effect: Effect::Used,
    },
    ignored("gssdelegation", Some("PGGSSDELEGATION")),
    only(
        "gssencmode",
        Some("PGGSSENCMODE"),
        &["disable", "prefer"],
        "GSSAPI encryption is not supported",
    ),
    ignored("gsslib", Some("PGGSSLIB")),
    used("host", "PGHOST"),
    used("hostaddr", "PGHOSTADDR"),
    ignored("keepalives", None),
    ignored("keepalives_count", None),
    ignored("keepalives_idle", None),
    ignored("keepalives_interval", None),
    ignored("krbsrvname", Some("PGKRBSRVNAME")),
    used("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    ignored("max_protocol_version", Some("PGMAXPROTOCOLVERSION")),
    only(
        "min_protocol_version",
        Some("PGMINPROTOCOLVERSION"),
        &["", "3.0"],
        "protocol 3.0 is spoken",
    ),
    ignored("oauth_client_id", None),
    ignored("oauth_client_secret", None),
    ignored("oauth_issuer", None),
    ignored("oauth_scope", None),
    used("options", "PGOPTIONS"),
    used("passfile", "PGPASSFILE"),
    used("password", "PGPASSWORD"),
    used("port", "PGPORT"),
    only(
        "replication",
        None,
        &["", "false", "off", "no", "0"],
        "replication connections are not supported",
    ),
    used("require_auth", "PGREQUIREAUTH"),
    used("requirepeer", "PGREQUIREPEER"),
    only(
        "scram_client_key",
        None,
        &[""],
        "SCRAM keys in place of a password are not supported",
    ),
    only(
        "scram_server_key",
        None,
        &[""],
        "SCRAM keys in place of a password are not supported",
    ),
    used("service", "PGSERVICE"),
    used("servicefile", "PGSERVICEFILE"),
    used("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    used("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    used("sslcert", "PGSSLCERT"),
    only(
        "sslcertmode",
        Some("PGSSLCERTMODE"),
        &["", "disable", "allow"],
        "sslcertmode=require is not supported",
    ),
    ignored("sslcompression", Some("PGSSLCOMPRESSION")),
    used("sslcrl", "PGSSLCRL"),
    used("sslcrldir", "PGSSLCRLDIR"),
    used("sslkey", "PGSSLKEY"),
    ignored("sslkeylogfile", None),
    used("sslmode", "PGSSLMODE"),
    used("sslnegotiation", "PGSSLNEGOTIATION"),
    // Encrypted keys are refused when the key is read, with their own message.
    ignored("sslpassword", None),
    used("sslrootcert", "PGSSLROOTCERT"),
    used("sslsni", "PGSSLSNI"),
    used("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ignored("tcp_user_timeout", None),
    used("user", "PGUSER"),
];

/// Values by keyword.
#[derive(Clone, Default)]
pub(super) struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// Sets a keyword; a later value replaces an earlier one.
    pub(super) fn set(&mut self, name: &str, value: String) -> Result<(), Problem> {
        let keyword = KEYWORDS
            .iter()
            .find(|keyword| keyword.name == name)
            .ok_or_else(|| unknown(name))?;
        if let Effect::Only(values, reason) = keyword.effect
            && !values.contains(&value.as_str())
        {
            return Err(Problem::usage(format!("{name}={value}: {reason}")));
        }
        self.0.insert(keyword.name, value);
        Ok(())
    }

    /// Sets a keyword unless it has a value.
    pub(super) fn set_default(&mut self, name: &str, value: String) -> Result<(), Problem> {
        if self.0.contains_key(name) {
            return Ok(());
        }
        self.set(name, value)
    }

    /// The value; `None` when it is empty, which means the same everywhere in libpq.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    /// Keywords and values, sorted.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

fn unknown(name: &str) -> Problem {
    let problem = Problem::usage(format!("unknown connection keyword \"{name}\""));
    let mut near: Vec<_> = KEYWORDS
        .iter()
        .map(|keyword| (distance(name, keyword.name), keyword.name))
        .filter(|(distance, known)| *distance <= 2 || alias(name) == Some(known))
        .collect();
    near.sort_unstable();
    if near.is_empty() {
        return problem.hint("keywords are those of libpq: host, port, user, dbname, sslmode …");
    }
    let names: Vec<_> = near.iter().take(3).map(|(_, name)| *name).collect();
    problem.hint(format!("did you mean {}?", names.join(" or ")))
}

/// What other drivers call a keyword.
fn alias(name: &str) -> Option<&'static str> {
    match name {
        "database" | "db" => Some("dbname"),
        "username" => Some("user"),
        "hostname" | "server" => Some("host"),
        "ssl" => Some("sslmode"),
        "timeout" => Some("connect_timeout"),
        _ => None,
    }
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_sorted() {
        assert!(KEYWORDS.is_sorted_by_key(|keyword| keyword.name));
    }

    #[test]
    fn an_unknown_keyword_names_the_known_ones_near_it() {
        for (name, near) in [
            ("hots", "host"),
            ("database", "dbname"),
            ("sslmod", "sslmode"),
            ("target_session_attr", "target_session_attrs"),
        ] {
            let problem = Values::default().set(name, String::new()).unwrap_err();
            assert!(problem.message.contains(name), "{problem}");
            assert!(problem.hint.unwrap().contains(near), "{name}");
        }
    }

    #[test]
    fn keywords_that_would_be_missed_are_refused() {
        let mut values = Values::default();
        for (name, value, accepted) in [
            ("gssencmode", "prefer", true),
            ("gssencmode", "require", false),
            ("replication", "database", false),
            ("krbsrvname", "postgres", true),
            ("scram_client_key", "abc", false),
        ] {
            let done = values.set(name, value.to_owned());
            assert_eq!(done.is_ok(), accepted, "{name}={value}");
        }
    }
}
