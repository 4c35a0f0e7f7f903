//! From given values to options: service file, environment, defaults, and the meaning of each
//! keyword.

use super::environment::{self, Environment};
use super::keywords::{KEYWORDS, Values};
use super::{ConnectOptions, HostAddress, Secret, SessionKind, SslMode};
use crate::problem::Problem;
use crate::session::tls::{Roots, Tls, TlsSettings};
use crate::wire::auth::{ChannelBinding, Method};
use rustls::version::{TLS12, TLS13};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name by which sessions are known in `pg_stat_activity`.
pub(super) const APPLICATION_NAME: &str = "pgdyno";
const PORT: u16 = 5432;
/// Where servers put their sockets: Debian's way, PostgreSQL's way.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

pub(super) fn resolve(
    mut values: Values,
    environment: &Environment,
) -> Result<ConnectOptions, Problem> {
    let service = values.get("service").or(environment.variable("PGSERVICE"));
    if let Some(service) = service.map(str::to_owned) {
        environment.apply_service(&service, &mut values)?;
    }
    // Not those of the environment: it need not be the same where `conninfo` is used.
    let given = values.clone();
    apply_defaults(&mut values, environment)?;
    let values = &values;

    let mut options = ConnectOptions::unix(Path::new(""), PORT, "", "");
    options.user = match values.get("user").or(environment.os_user.as_deref()) {
        Some(user) => user.to_owned(),
        None => {
            return Err(
                Problem::usage("no user name: this process has no name in the system")
                    .hint("give user=NAME or PGUSER"),
            );
        }
    };
    values
        .get("dbname")
        .unwrap_or(&options.user)
        .clone_into(&mut options.database);
    options.hosts = hosts(values)?;
    options.ssl_mode = ssl_mode(values)?;
    values
        .get("application_name")
        .or(values.get("fallback_application_name"))
        .unwrap_or(APPLICATION_NAME)
        .clone_into(&mut options.application_name);
    options.options = values.get("options").map(str::to_owned);
    options.connect_timeout = connect_timeout(values)?;
    options.channel_binding = channel_binding(values)?;
    options.methods = methods(values)?;
    options.session_kind = session_kind(values)?;
    options.shuffle = choice(
        values,
        "load_balance_hosts",
        &[("disable", false), ("random", true)],
    )?
    .unwrap_or(false);
    options.require_peer = values.get("requirepeer").map(str::to_owned);
    let tcp = |(host, _): &(HostAddress, u16)| matches!(host, HostAddress::Tcp { .. });
    let settings = tls_settings(values, environment, options.ssl_mode)?;
    if options.ssl_mode != SslMode::Disable && options.hosts.iter().any(tcp) {
        options.tls = Some(Arc::new(Tls::load(&settings)));
    }
    passwords(values, environment, &mut options);
    options.more = more(&given);
    Ok(options)
}

/// Environment, and the defaults that depend on other keywords.
fn apply_defaults(values: &mut Values, environment: &Environment) -> Result<(), Problem> {
    for keyword in KEYWORDS {
        if let Some(variable) = keyword.variable
            && let Some(value) = environment.variable(variable)
        {
            values
                .set_default(keyword.name, value.to_owned())
                .map_err(|problem| problem.context(variable))?;
        }
    }
    if values.get("sslmode").is_none() {
        if environment.variable("PGREQUIRESSL") == Some("1") {
            values.set("sslmode", "require".to_owned())?;
        } else if values.get("sslrootcert") == Some("system") {
            values.set("sslmode", "verify-full".to_owned())?;
        }
    }
    Ok(())
}

/// What was given and is not told by the fields of the options.
fn more(given: &Values) -> Vec<(&'static str, String)> {
    const TOLD: &[&str] = &[
        "dbname",
        "host",
        "hostaddr",
        "passfile",
        "password",
        "port",
        "scram_client_key",
        "scram_server_key",
        "service",
        "servicefile",
        "sslpassword",
        "oauth_client_secret",
        "user",
    ];
    given
        .iter()
        .filter(|(name, _)| !TOLD.contains(name))
        .map(|(name, value)| (name, value.to_owned()))
        .collect()
}

/// The lists of hosts, addresses and ports, put together as in libpq's `connectOptions2`.
fn hosts(values: &Values) -> Result<Vec<(HostAddress, u16)>, Problem> {
    let list = |name| -> Vec<&str> {
        values
            .get(name)
            .map_or(Vec::new(), |list| list.split(',').map(str::trim).collect())
    };
    let (mut names, mut addrs, ports) = (list("host"), list("hostaddr"), list("port"));
    if !names.is_empty() && !addrs.is_empty() && names.len() != addrs.len() {
        return Err(Problem::usage(format!(
            "{} host names do not match {} values of hostaddr",
            names.len(),
            addrs.len()
        )));
    }
    let count = names.len().max(addrs.len()).max(1);
    names.resize(count, "");
    addrs.resize(count, "");
    if ports.len() > 1 && ports.len() != count {
        return Err(
            Problem::usage(format!("{} ports do not match {count} hosts", ports.len()))
                .hint("give one port for all hosts, or one for each"),
        );
    }
    let mut hosts = Vec::with_capacity(count);
    for (index, (name, addr)) in names.iter().zip(&addrs).enumerate() {
        let port = port(ports.get(index).or(ports.first()).copied().unwrap_or(""))?;
        hosts.push((host(name, addr, port)?, port));
    }
    Ok(hosts)
}

fn port(text: &str) -> Result<u16, Problem> {
    match text {
        "" => Ok(PORT),
        _ => text.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            Problem::usage(format!("\"{text}\" is not a port"))
                .hint("a port is a number from 1 to 65535; PostgreSQL listens on 5432")
        }),
    }
}

fn host(name: &str, addr: &str, port: u16) -> Result<HostAddress, Problem> {
    if !addr.is_empty() {
        let addr: IpAddr = addr
            .parse()
            .map_err(|_| Problem::usage(format!("hostaddr \"{addr}\" is not an IP address")))?;
        return Ok(HostAddress::Tcp {
            host: name.to_owned(),
            addr: Some(addr),
        });
    }
    if name.starts_with(['/', '@']) {
        return Ok(HostAddress::Unix(PathBuf::from(name)));
    }
    if !name.is_empty() {
        return Ok(HostAddress::Tcp {
            host: name.to_owned(),
            addr: None,
        });
    }
    let there = SOCKET_DIRECTORIES
        .iter()
        .map(Path::new)
        .find(|directory| directory.join(format!(".s.PGSQL.{port}")).exists());
    Ok(match there {
        Some(directory) => HostAddress::Unix(directory.to_owned()),
        None => HostAddress::Tcp {
            host: "localhost".to_owned(),
            addr: None,
        },
    })
}

/// The value of a keyword that has a fixed set of them.
fn choice<T: Copy>(
    values: &Values,
    name: &str,
    choices: &[(&str, T)],
) -> Result<Option<T>, Problem> {
    let Some(value) = values.get(name) else {
        return Ok(None);
    };
    if let Some((_, meaning)) = choices.iter().find(|(choice, _)| *choice == value) {
        return Ok(Some(*meaning));
    }
    let names: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
    Err(
        Problem::usage(format!("{name}: \"{value}\" is not a value"))
            .hint(format!("one of {}", names.join(", "))),
    )
}

fn ssl_mode(values: &Values) -> Result<SslMode, Problem> {
    let mode = choice(
        values,
        "sslmode",
        &[
            ("disable", SslMode::Disable),
            ("allow", SslMode::Allow),
            ("prefer", SslMode::Prefer),
            ("require", SslMode::Require),
            ("verify-ca", SslMode::VerifyCa),
            ("verify-full", SslMode::VerifyFull),
        ],
    )?
    .unwrap_or(SslMode::Prefer);
    if values.get("sslrootcert") == Some("system") && mode != SslMode::VerifyFull {
        return Err(
            Problem::usage("sslrootcert=system would be weak without sslmode=verify-full")
                .hint("anybody can have a certificate of a public authority"),
        );
    }
    Ok(mode)
}

fn connect_timeout(values: &Values) -> Result<Option<Duration>, Problem> {
    let Some(text) = values.get("connect_timeout") else {
        return Ok(None);
    };
    let seconds: i32 = text.trim().parse().map_err(|_| {
        Problem::usage(format!(
            "connect_timeout: \"{text}\" is not a whole number of seconds"
        ))
    })?;
    Ok(u64::try_from(seconds)
        .ok()
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs))
}

fn channel_binding(values: &Values) -> Result<ChannelBinding, Problem> {
    let chosen = choice(
        values,
        "channel_binding",
        &[
            ("disable", ChannelBinding::Disable),
            ("prefer", ChannelBinding::Prefer),
            ("require", ChannelBinding::Require),
        ],
    )?;
    Ok(chosen.unwrap_or_default())
}

fn session_kind(values: &Values) -> Result<SessionKind, Problem> {
    let chosen = choice(
        values,
        "target_session_attrs",
        &[
            ("any", SessionKind::Any),
            ("read-write", SessionKind::ReadWrite),
            ("read-only", SessionKind::ReadOnly),
            ("primary", SessionKind::Primary),
            ("standby", SessionKind::Standby),
            ("prefer-standby", SessionKind::PreferStandby),
        ],
    )?;
    Ok(chosen.unwrap_or_default())
}

/// `require_auth`: a list of methods that are allowed, or, each with `!`, that are not.
fn methods(values: &Values) -> Result<Vec<Method>, Problem> {
    /// Known to libpq and not spoken here.
    const OTHERS: [&str; 3] = ["gss", "sspi", "oauth"];
    let Some(text) = values.get("require_auth") else {
        return Ok(Method::ALL.to_vec());
    };
    let bad = |what: String| Problem::usage(format!("require_auth: {what}"));
    let mut named = Vec::new();
    let mut negations = 0;
    let entries: Vec<_> = text.split(',').map(str::trim).collect();
    for entry in &entries {
        let name = entry.strip_prefix('!').unwrap_or(entry);
        negations += usize::from(entry.starts_with('!'));
        match Method::ALL.iter().find(|method| method.name() == name) {
            Some(method) => named.push(*method),
            None if OTHERS.contains(&name) => {}
            None => return Err(bad(format!("\"{name}\" is not a method"))),
        }
    }
    if negations == 0 {
        return Ok(named);
    }
    if negations != entries.len() {
        return Err(bad(
            "methods with and without \"!\" cannot be mixed".to_owned()
        ));
    }
    let mut allowed = Method::ALL.to_vec();
    allowed.retain(|method| !named.contains(method));
    Ok(allowed)
}

fn tls_settings(
    values: &Values,
    environment: &Environment,
    mode: SslMode,
) -> Result<TlsSettings, Problem> {
    let file = |name, default: &str| -> Option<PathBuf> {
        let given = values.get(name).map(PathBuf::from);
        given.or_else(|| environment.in_home(&format!(".postgresql/{default}")))
    };
    let roots = match values.get("sslrootcert") {
        Some("system") => Some(Roots::System),
        _ => file("sslrootcert", "root.crt").map(Roots::File),
    };
    let direct = choice(
        values,
        "sslnegotiation",
        &[("postgres", false), ("direct", true)],
    )?
    .unwrap_or(false);
    if direct && mode < SslMode::Require {
        return Err(Problem::usage(
            "sslnegotiation=direct would be weak with an sslmode below require",
        ));
    }
    let shown = values.get("sslcertmode") != Some("disable");
    let revoked_directory = values.get("sslcrldir").map(PathBuf::from);
    Ok(TlsSettings {
        mode,
        roots,
        revoked: match &revoked_directory {
            Some(_) => values.get("sslcrl").map(PathBuf::from),
            None => file("sslcrl", "root.crl"),
        },
        revoked_directory,
        certificate: file("sslcert", "postgresql.crt").filter(|_| shown),
        key: file("sslkey", "postgresql.key"),
        sni: choice(values, "sslsni", &[("0", false), ("1", true)])?.unwrap_or(true),
        direct,
        versions: tls_versions(values)?,
    })
}

fn tls_versions(
    values: &Values,
) -> Result<Vec<&'static rustls::SupportedProtocolVersion>, Problem> {
    const VERSIONS: [(&str, u8); 4] =
        [("TLSv1", 0), ("TLSv1.1", 1), ("TLSv1.2", 2), ("TLSv1.3", 3)];
    let min = choice(values, "ssl_min_protocol_version", &VERSIONS)?.unwrap_or(2);
    let max = choice(values, "ssl_max_protocol_version", &VERSIONS)?.unwrap_or(3);
    let versions: Vec<_> = [(2, &TLS12), (3, &TLS13)]
        .into_iter()
        .filter(|(version, _)| (min..=max).contains(version))
        .map(|(_, version)| version)
        .collect();
    if versions.is_empty() {
        return Err(Problem::usage(
            "no TLS version is left between ssl_min_protocol_version and ssl_max_protocol_version",
        )
        .hint("TLSv1.2 and TLSv1.3 are spoken"));
    }
    Ok(versions)
}

/// The password given, or that of the password file, for each host.
fn passwords(values: &Values, environment: &Environment, options: &mut ConnectOptions) {
    if let Some(password) = values.get("password") {
        *options = options.with_password(password);
        return;
    }
    options.passwords = vec![None; options.hosts.len()];
    let file = values
        .get("passfile")
        .map(PathBuf::from)
        .or_else(|| environment.in_home(".pgpass"));
    let Some(file) = file else {
        return;
    };
    let lines = match environment::password_file(&file) {
        Ok(lines) => lines,
        Err(note) => {
            options.notes.extend(note);
            return;
        }
    };
    for (index, (host, port)) in options.hosts.iter().enumerate() {
        let name = host.to_string();
        let mut names = vec![name.as_str()];
        if matches!(host, HostAddress::Unix(_)) {
            names.push("localhost");
        }
        let rest = [&*port.to_string(), &options.database, &options.user];
        let found = lines.iter().find_map(|line| line.matching(&names, rest));
        options.passwords[index] = found.map(|password| Secret(password.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    /// A user `me` with a home directory, and these variables.
    fn environment(home: &Path, variables: &[(&str, &str)]) -> Environment {
        Environment {
            variables: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            home: Some(home.to_owned()),
            os_user: Some("me".to_owned()),
        }
    }

    fn parse(target: &str, variables: &[(&str, &str)]) -> Result<ConnectOptions, Problem> {
        ConnectOptions::parse_in(target, &environment(Path::new("/nonexistent"), variables))
    }

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::File::create(path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
            .unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_given_wins_over_the_environment_and_that_over_defaults() {
        for (target, variables, described) in [
            ("host=h", &[][..], "h:5432/me as me"),
            ("host=h user=u", &[], "h:5432/u as u"),
            (
                "host=h port=1 dbname=d",
                &[("PGPORT", "2"), ("PGUSER", "u")],
                "h:1/d as u",
            ),
            (
                "env",
                &[("PGHOST", "h"), ("PGDATABASE", "d")],
                "h:5432/d as me",
            ),
            ("d", &[("PGHOST", "/s")], "/s:5432/d as me"),
            (
                "host='' dbname=d",
                &[("PGPORT", "59999")],
                "localhost:59999/d as me",
            ),
            ("host=h", &[("PGPORT", "")], "h:5432/me as me"),
            ("host=::1", &[], "[::1]:5432/me as me"),
            ("host=a,/s,@x port=1,2,3", &[], "a:1,/s:2,@x:3/me as me"),
            ("host=a,b port=7", &[], "a:7,b:7/me as me"),
            ("host=a,b port=7,", &[], "a:7,b:5432/me as me"),
            ("hostaddr=127.0.0.1", &[], "127.0.0.1:5432/me as me"),
            ("host=h hostaddr=::1", &[], "h:5432/me as me"),
        ] {
            let options = parse(target, variables).unwrap();
            assert_eq!(options.describe(), described, "{target}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_a_usage_problem_that_names_it() {
        for (target, variables, names) in [
            ("", &[][..], "empty"),
            ("  ", &[], "empty"),
            ("host=h port=x", &[], "\"x\""),
            ("host=h port=0", &[], "\"0\""),
            ("host=h port=65536", &[], "65536"),
            ("host=h port=-1", &[], "-1"),
            ("host=a,b port=1,2,3", &[], "3 ports"),
            ("host=a,b hostaddr=::1", &[], "hostaddr"),
            ("hostaddr=localhost", &[], "localhost"),
            ("host=h sslmode=verify", &[], "verify"),
            ("host=h sslmode=Require", &[], "Require"),
            ("host=h sslmode=require sslrootcert=system", &[], "system"),
            ("host=h sslnegotiation=direct", &[], "direct"),
            ("host=h sslnegotiation=now sslmode=require", &[], "now"),
            ("host=h sslsni=2", &[], "sslsni"),
            (
                "host=h ssl_max_protocol_version=TLSv1.1",
                &[],
                "TLS version",
            ),
            ("host=h ssl_min_protocol_version=SSLv3", &[], "SSLv3"),
            ("host=h connect_timeout=soon", &[], "soon"),
            ("host=h channel_binding=maybe", &[], "maybe"),
            ("host=h target_session_attrs=master", &[], "master"),
            ("host=h load_balance_hosts=yes", &[], "yes"),
            ("host=h require_auth=magic", &[], "magic"),
            ("host=h require_auth=md5,!password", &[], "mixed"),
            ("host=h gssencmode=require", &[], "gssencmode"),
            ("env", &[("PGSSLMODE", "on")], "sslmode"),
            ("env", &[("PGGSSENCMODE", "require")], "PGGSSENCMODE"),
            (
                "env",
                &[("PGSERVICE", "nowhere"), ("PGSYSCONFDIR", "/nonexistent")],
                "nowhere",
            ),
        ] {
            let problem = parse(target, variables).unwrap_err();
            assert_eq!(problem.exit_code(), 2, "{target}: {problem}");
            assert!(problem.message.contains(names), "{target}: {problem}");
        }
    }

    #[test]
    fn keywords_have_the_meaning_that_libpq_gives_them() {
        let options = parse(
            "host=h sslmode=verify-ca application_name=a connect_timeout=3 options='-c x=y' \
             channel_binding=require target_session_attrs=prefer-standby load_balance_hosts=random \
             require_auth=!md5,!password requirepeer=postgres",
            &[],
        )
        .unwrap();
        assert_eq!(options.ssl_mode, SslMode::VerifyCa);
        assert_eq!(options.application_name, "a");
        assert_eq!(options.connect_timeout, Some(Duration::from_secs(3)));
        assert_eq!(options.options.as_deref(), Some("-c x=y"));
        assert_eq!(options.channel_binding, ChannelBinding::Require);
        assert_eq!(options.session_kind, SessionKind::PreferStandby);
        assert_eq!(options.methods, [Method::None, Method::ScramSha256]);
        assert_eq!(options.require_peer.as_deref(), Some("postgres"));
        assert!(options.shuffle);
        let defaults = parse("host=h", &[]).unwrap();
        assert_eq!(defaults.ssl_mode, SslMode::Prefer);
        assert_eq!(defaults.application_name, "pgdyno");
        assert_eq!(defaults.connect_timeout, None);
        assert_eq!(defaults.methods, Method::ALL);
        let never = parse("host=h connect_timeout=-1", &[]).unwrap();
        assert_eq!(never.connect_timeout, None);
        let system = parse("host=h sslrootcert=system", &[]).unwrap();
        assert_eq!(system.ssl_mode, SslMode::VerifyFull);
        let old = parse("host=h", &[("PGREQUIRESSL", "1")]).unwrap();
        assert_eq!(old.ssl_mode, SslMode::Require);
    }

    #[test]
    fn the_password_is_never_shown() {
        let options = parse("host=h user='a b' password=s3cr3t sslmode=disable", &[]).unwrap();
        assert_eq!(options.password(0).unwrap().reveal(), "s3cr3t");
        let shown = options.conninfo();
        assert_eq!(
            shown,
            "host=h port=5432 user='a b' dbname='a b' sslmode=disable"
        );
        for text in [shown, format!("{options:?}"), options.describe()] {
            assert!(!text.contains("s3cr3t"), "{text}");
        }
        assert!(!format!("{:?}", options.password(0)).contains("s3cr3t"));
    }

    #[test]
    fn conninfo_can_be_parsed_again() {
        for target in [
            "host=a,/s port=1,2 user=u dbname=d",
            r"host=h user='it\'s' dbname='a\\b c' options='-c a=b'",
            "host=h hostaddr=::1 sslmode=verify-full sslrootcert=/nonexistent",
        ] {
            let once = parse(target, &[]).unwrap().conninfo();
            assert_eq!(parse(&once, &[]).unwrap().conninfo(), once, "{target}");
        }
    }

    #[test]
    fn hosts_on_this_machine_are_local() {
        for (target, local) in [
            ("host=/tmp", true),
            ("host=localhost", true),
            ("host=127.0.0.2", true),
            ("host=::1", true),
            ("host=db hostaddr=127.0.0.1", true),
            ("host=db", false),
            ("host=localhost,db", false),
            ("host=10.0.0.1", false),
        ] {
            assert_eq!(parse(target, &[]).unwrap().is_local(), local, "{target}");
        }
    }

    #[test]
    fn passwords_come_from_the_password_file_of_the_user() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".pgpass");
        let text = "a:5432:*:me:for a\nlocalhost:*:*:*:local\n*:*:other:*:for other\n";
        write(&file, text, 0o600);
        let parse =
            |target| ConnectOptions::parse_in(target, &environment(home.path(), &[])).unwrap();
        for (target, passwords) in [
            ("host=a", [Some("for a"), None]),
            ("host=a port=1", [None, None]),
            ("host=/run/x", [Some("local"), None]),
            ("host=b,a", [None, Some("for a")]),
            ("host=b dbname=other", [Some("for other"), None]),
            ("host=a password=given", [Some("given"), None]),
        ] {
            let options = parse(target);
            let found = [0, 1].map(|host| options.password(host));
            let found = found.each_ref().map(|s| s.as_ref().map(Secret::reveal));
            assert_eq!(found, passwords, "{target}");
        }
        write(&file, text, 0o644);
        let ignored = parse("host=a");
        assert_eq!(ignored.password(0), None);
        assert!(ignored.notes[0].contains("0600"), "{:?}", ignored.notes);
    }

    #[test]
    fn a_service_fills_what_is_not_given() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".pg_service.conf");
        let text = "# mine\n[one]\nhost=h1\nport=1\n\n[two]\nhost=h2\nuser=u2\n[bad]\nhots=x\n";
        write(&file, text, 0o644);
        let parse = |target, variables: &[(&str, &str)]| {
            ConnectOptions::parse_in(target, &environment(home.path(), variables))
        };
        let one = parse("service=one", &[("PGPORT", "9")]).unwrap();
        assert_eq!(one.describe(), "h1:1/me as me");
        let two = parse("user=mine", &[("PGSERVICE", "two"), ("PGPORT", "9")]).unwrap();
        assert_eq!(two.describe(), "h2:9/mine as mine");
        let bad = parse("service=bad", &[]).unwrap_err();
        assert!(bad.message.contains("line 10"), "{bad}");
        let other = home.path().join("other.conf");
        write(&other, "[three]\nhost=h3\n", 0o644);
        let named = [("PGSERVICEFILE", other.to_str().unwrap())];
        let three = parse("service=three", &named).unwrap();
        assert_eq!(three.describe(), "h3:5432/me as me");
        let gone = parse("service=x", &[("PGSERVICEFILE", "/nonexistent/f")]).unwrap_err();
        assert!(gone.message.contains("/nonexistent/f"), "{gone}");
    }
}
