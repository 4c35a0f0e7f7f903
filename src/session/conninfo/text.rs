//! Connection strings: `keyword=value …` and `postgresql://…`, into [`Values`].

use super::keywords::Values;
use crate::problem::Problem;

/// What a connection string says; a word without `=` that is no URI is a database, as for `psql`.
pub(super) fn parse(text: &str) -> Result<Values, Problem> {
    for scheme in ["postgresql://", "postgres://"] {
        if let Some(rest) = text.strip_prefix(scheme) {
            return uri(rest);
        }
    }
    let scheme = text.split_once(":/").map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric())) {
        return Err(Problem::usage(format!(
            "not a connection URI: \"{}\"",
            scheme.unwrap_or("")
        ))
        .hint("URIs begin with postgresql:// or postgres://"));
    }
    if text.contains('=') {
        return keyword_values(text);
    }
    let mut values = Values::default();
    values.set("dbname", text.trim().to_owned())?;
    Ok(values)
}

/// `conninfo_parse` in fe-connect.c: blanks around `=`, quotes, and backslashes.
fn keyword_values(text: &str) -> Result<Values, Problem> {
    let mut values = Values::default();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| c == '=' || c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let Some(after) = after.trim_start().strip_prefix('=') else {
            return Err(Problem::usage(format!(
                "missing \"=\" after \"{name}\" in the connection string"
            ))
            .hint("values with blanks are quoted: password='two words'"));
        };
        let (value, after) = value(after.trim_start())?;
        values.set(name, value)?;
        rest = after.trim_start();
    }
    Ok(values)
}

/// One value and what follows it.
fn value(text: &str) -> Result<(String, &str), Problem> {
    let mut value = String::new();
    let quoted = text.starts_with('\'');
    let text = if quoted { &text[1..] } else { text };
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_ascii_whitespace() => return Ok((value, &text[at..])),
            // A backslash at the very end stands for nothing.
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(Problem::usage(
            "unterminated quoted value in the connection string",
        ));
    }
    Ok((value, ""))
}

/// `conninfo_uri_parse_options`: `[user[:password]@][host[:port][,…]][/dbname][?name=value&…]`.
fn uri(text: &str) -> Result<Values, Problem> {
    let mut values = Values::default();
    let mut rest = text;
    if let Some(at) = text
        .find(['@', '/'])
        .filter(|at| text[*at..].starts_with('@'))
    {
        let (user, password) = match text[..at].split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (&text[..at], None),
        };
        if !user.is_empty() {
            values.set("user", decoded(user)?)?;
        }
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            values.set("password", decoded(password)?)?;
        }
        rest = &text[at + 1..];
    }
    let mut hosts = Vec::new();
    let mut ports = Vec::new();
    loop {
        let (host, port, after) = host_and_port(rest)?;
        hosts.push(decoded(host)?);
        ports.push(decoded(port)?);
        let Some(next) = after.strip_prefix(',') else {
            rest = after;
            break;
        };
        rest = next;
    }
    for (name, list) in [("host", hosts), ("port", ports)] {
        if list.iter().any(|entry| !entry.is_empty()) {
            values.set(name, list.join(","))?;
        }
    }
    if let Some(path) = rest.strip_prefix('/') {
        let (database, _) = path.split_once('?').unwrap_or((path, ""));
        if !database.is_empty() {
            values.set("dbname", decoded(database)?)?;
        }
        rest = &path[database.len()..];
    }
    if let Some(parameters) = rest.strip_prefix('?') {
        uri_parameters(parameters, &mut values)?;
    }
    Ok(values)
}

/// One host, its port (either may be empty), and what follows.
fn host_and_port(text: &str) -> Result<(&str, &str, &str), Problem> {
    let (host, rest) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or_else(|| {
            Problem::usage("missing \"]\" after an IPv6 address in the connection URI")
        })?;
        if host.is_empty() {
            return Err(Problem::usage("empty IPv6 address in the connection URI"));
        }
        if !rest.is_empty() && !rest.starts_with([':', '/', '?', ',']) {
            return Err(Problem::usage(format!(
                "unexpected \"{rest}\" after the IPv6 address in the connection URI"
            )));
        }
        (host, rest)
    } else {
        text.split_at(text.find([':', '/', '?', ',']).unwrap_or(text.len()))
    };
    let Some(port) = rest.strip_prefix(':') else {
        return Ok((host, "", rest));
    };
    let (port, rest) = port.split_at(port.find(['/', '?', ',']).unwrap_or(port.len()));
    Ok((host, port, rest))
}

fn uri_parameters(text: &str, values: &mut Values) -> Result<(), Problem> {
    for parameter in text.split('&') {
        let Some((name, value)) = parameter.split_once('=') else {
            if parameter.is_empty() {
                continue;
            }
            return Err(Problem::usage(format!(
                "missing \"=\" after \"{parameter}\" in the connection URI"
            )));
        };
        if value.contains('=') {
            return Err(Problem::usage(format!(
                "extra \"=\" in parameter \"{name}\" of the connection URI"
            ))
            .hint("write %3D for an equals sign"));
        }
        match (decoded(name)?, decoded(value)?) {
            // As JDBC has it.
            (name, value) if name == "ssl" && value == "true" => {
                values.set("sslmode", "require".to_owned())?;
            }
            (name, value) => values.set(&name, value)?,
        }
    }
    Ok(())
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Result<String, Problem> {
    let bad = |what: &str| Problem::usage(format!("{what} in the connection URI"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, tail) = rest
            .split_at_checked(2)
            .ok_or_else(|| bad("incomplete percent-encoded token"))?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (Some(high), Some(low)) = (digit(digits[0]), digit(digits[1])) else {
            return Err(bad("invalid percent-encoded token").hint("write %25 for a percent sign"));
        };
        let byte = u8::try_from(high * 16 + low).unwrap_or(0);
        if byte == 0 {
            return Err(bad("forbidden value %00"));
        }
        bytes.push(byte);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| bad("a percent-encoded value that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name=value` pairs in the order of names, or the message of the problem.
    fn read(text: &str) -> String {
        match parse(text) {
            Ok(values) => {
                let pairs: Vec<_> = values.iter().map(|(n, v)| format!("{n}={v}")).collect();
                pairs.join(" ")
            }
            Err(problem) => {
                assert_eq!(problem.exit_code(), 2, "{text}");
                format!("! {}", problem.message)
            }
        }
    }

    #[test]
    fn keyword_strings_are_read_as_libpq_reads_them() {
        for (text, expected) in [
            ("host=h", "host=h"),
            ("host=h port=1 user=u", "host=h port=1 user=u"),
            ("  host = h   port= 1 ", "host=h port=1"),
            ("host=a host=b", "host=b"),
            ("host='' user=u", "host= user=u"),
            ("password='two words'", "password=two words"),
            (r"password='it\'s' user=u", "password=it's user=u"),
            (r"password=it\'s", "password=it's"),
            (r"password=a\ b", "password=a b"),
            (r"password='\\'", r"password=\"),
            (r"password=a\", "password=a"),
            ("password=a'b", "password=a'b"),
            ("host= port=1", "host=port=1"),
            ("dbname='a=b'", "dbname=a=b"),
            ("host=h\tport=1\nuser=u", "host=h port=1 user=u"),
            ("options='-c a=b'", "options=-c a=b"),
            ("host=/tmp,h2 port=,2", "host=/tmp,h2 port=,2"),
            ("user=jürgen", "user=jürgen"),
            ("mydb", "dbname=mydb"),
            ("my db", "dbname=my db"),
            (
                "host=h port",
                "! missing \"=\" after \"port\" in the connection string",
            ),
            ("=x", "! unknown connection keyword \"\""),
            (
                "password='x",
                "! unterminated quoted value in the connection string",
            ),
            ("hots=h", "! unknown connection keyword \"hots\""),
            ("HOST=h", "! unknown connection keyword \"HOST\""),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn uris_are_read_as_libpq_reads_them() {
        for (text, expected) in [
            ("postgresql://", ""),
            ("postgres://h", "host=h"),
            ("postgresql://h:1/d", "dbname=d host=h port=1"),
            ("postgresql://u@h", "host=h user=u"),
            ("postgresql://u:p@h", "host=h password=p user=u"),
            ("postgresql://u:@h", "host=h user=u"),
            ("postgresql://:p@h", "host=h password=p"),
            (
                "postgresql://u%40x:p%3Aq%2f@h",
                "host=h password=p:q/ user=u@x",
            ),
            ("postgresql://u:a:b@h", "host=h password=a:b user=u"),
            ("postgresql://h1:1,h2:2/d", "dbname=d host=h1,h2 port=1,2"),
            ("postgresql://h1,h2", "host=h1,h2"),
            ("postgresql://h1,h2:2", "host=h1,h2 port=,2"),
            ("postgresql://:5433/d", "dbname=d port=5433"),
            ("postgresql:///d", "dbname=d"),
            ("postgresql:///d?host=/tmp", "dbname=d host=/tmp"),
            ("postgresql://[::1]", "host=::1"),
            ("postgresql://[::1]:1/d", "dbname=d host=::1 port=1"),
            (
                "postgresql://u@[2001:db8::1],h:2",
                "host=2001:db8::1,h port=,2 user=u",
            ),
            ("postgresql://%2Fvar%2Frun/d", "dbname=d host=/var/run"),
            (
                "postgresql://h?user=u&sslmode=require",
                "host=h sslmode=require user=u",
            ),
            ("postgresql://h/?user=u", "host=h user=u"),
            ("postgresql://h?ssl=true", "host=h sslmode=require"),
            ("postgresql://h?options=-c%20a%3Db", "host=h options=-c a=b"),
            (
                "postgresql://h/d?application_name=a+b",
                "application_name=a+b dbname=d host=h",
            ),
            ("postgresql://h/d@x", "dbname=d@x host=h"),
            ("postgresql://h1?host=h2", "host=h2"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn uris_that_libpq_refuses_are_refused() {
        for (text, expected) in [
            (
                "postgresql://[::1",
                "! missing \"]\" after an IPv6 address in the connection URI",
            ),
            (
                "postgresql://[]/d",
                "! empty IPv6 address in the connection URI",
            ),
            (
                "postgresql://[::1]x",
                "! unexpected \"x\" after the IPv6 address in the connection URI",
            ),
            (
                "postgresql://h?user",
                "! missing \"=\" after \"user\" in the connection URI",
            ),
            (
                "postgresql://h?user=a=b",
                "! extra \"=\" in parameter \"user\" of the connection URI",
            ),
            (
                "postgresql://h?zzz=1",
                "! unknown connection keyword \"zzz\"",
            ),
            (
                "postgresql://h?ssl=false",
                "! unknown connection keyword \"ssl\"",
            ),
            (
                "postgresql://%zz",
                "! invalid percent-encoded token in the connection URI",
            ),
            (
                "postgresql://a%4",
                "! incomplete percent-encoded token in the connection URI",
            ),
            (
                "postgresql://a%00",
                "! forbidden value %00 in the connection URI",
            ),
            (
                "postgresql://a%ff",
                "! a percent-encoded value that is not UTF-8 in the connection URI",
            ),
            ("postgres:/h/d", "! not a connection URI: \"postgres\""),
            ("mysql://h/d", "! not a connection URI: \"mysql\""),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_string_makes_the_reader_panic(text: String, scheme: bool) {
            let prefix = if scheme { "postgresql://" } else { "user=" };
            let _ = parse(&text);
            let _ = parse(&format!("{prefix}{text}"));
        }
    }
}
