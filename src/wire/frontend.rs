//! The messages that a client sends, appended to a buffer that is used again and again.
//!
//! Strings must not contain a NUL byte (the protocol ends strings with one); callers check.

/// Protocol 3.0, which every server since 7.4 speaks.
const PROTOCOL: i32 = 3 << 16;
/// The codes of the requests that come instead of a protocol version.
const CANCEL_REQUEST: i32 = 80_877_102;
const SSL_REQUEST: i32 = 80_877_103;

/// The format code of binary parameters and results.
const BINARY: i16 = 1;

/// `StartupMessage` with its parameters (`user`, `database`, `application_name` …).
pub fn startup(out: &mut Vec<u8>, parameters: &[(&str, &str)]) {
    counted(out, |out| {
        out.extend_from_slice(&PROTOCOL.to_be_bytes());
        for (name, value) in parameters {
            cstring(out, name);
            cstring(out, value);
        }
        out.push(0);
    });
}

/// `SSLRequest`: answered by one byte, `S` or `N`.
pub fn ssl_request(out: &mut Vec<u8>) {
    counted(out, |out| out.extend_from_slice(&SSL_REQUEST.to_be_bytes()));
}

/// `CancelRequest`, sent on a connection of its own.
pub fn cancel_request(out: &mut Vec<u8>, process_id: i32, secret: &[u8]) {
    counted(out, |out| {
        out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
        out.extend_from_slice(&process_id.to_be_bytes());
        out.extend_from_slice(secret);
    });
}

/// `PasswordMessage`: cleartext or the md5 answer.
pub fn password(out: &mut Vec<u8>, password: &[u8]) {
    message(out, b'p', |out| {
        out.extend_from_slice(password);
        out.push(0);
    });
}

/// `SASLInitialResponse`.
pub fn sasl_initial_response(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) {
    message(out, b'p', |out| {
        cstring(out, mechanism);
        counted_value(out, |out| out.extend_from_slice(data));
    });
}

/// `SASLResponse`.
pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
    message(out, b'p', |out| out.extend_from_slice(data));
}

/// `Query`: the simple protocol.
pub fn query(out: &mut Vec<u8>, sql: &str) {
    message(out, b'Q', |out| cstring(out, sql));
}

/// `Parse` without parameter types: the server infers them.
pub fn parse(out: &mut Vec<u8>, statement: &str, sql: &str) {
    message(out, b'P', |out| {
        cstring(out, statement);
        cstring(out, sql);
        out.extend_from_slice(&0_i16.to_be_bytes());
    });
}

/// `Close` of a prepared statement; not an error when it does not exist.
pub fn close(out: &mut Vec<u8>, statement: &str) {
    message(out, b'C', |out| {
        out.push(b'S');
        cstring(out, statement);
    });
}

/// `Bind` of the unnamed portal to a prepared statement; `values` appends `parameters` values,
/// each with its length (see [`super::value`]). Parameters and results are binary.
pub fn bind(
    out: &mut Vec<u8>,
    statement: &str,
    parameters: u16,
    values: impl FnOnce(&mut Vec<u8>),
) {
    message(out, b'B', |out| {
        out.push(0);
        cstring(out, statement);
        out.extend_from_slice(&1_i16.to_be_bytes());
        out.extend_from_slice(&BINARY.to_be_bytes());
        out.extend_from_slice(&parameters.to_be_bytes());
        values(out);
        out.extend_from_slice(&1_i16.to_be_bytes());
        out.extend_from_slice(&BINARY.to_be_bytes());
    });
}

/// `Execute` of the unnamed portal, all rows.
pub fn execute(out: &mut Vec<u8>) {
    message(out, b'E', |out| {
        out.push(0);
        out.extend_from_slice(&0_i32.to_be_bytes());
    });
}

/// `Sync`: ends a queue; the server answers with `ReadyForQuery`.
pub fn sync(out: &mut Vec<u8>) {
    message(out, b'S', |_| {});
}

/// `CopyData`.
pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    message(out, b'd', |out| out.extend_from_slice(data));
}

/// `CopyDone`.
pub fn copy_done(out: &mut Vec<u8>) {
    message(out, b'c', |_| {});
}

/// `CopyFail` with the reason that the server will report.
pub fn copy_fail(out: &mut Vec<u8>, reason: &str) {
    message(out, b'f', |out| cstring(out, reason));
}

/// `Terminate`: the polite end of a connection.
pub fn terminate(out: &mut Vec<u8>) {
    message(out, b'X', |_| {});
}

fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    counted(out, body);
}

/// A length that counts itself, then the body.
fn counted(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = out.len() - begin;
    put_length(out, begin, length);
}

/// A length that does not count itself, then the body.
pub(super) fn counted_value(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = out.len() - begin - 4;
    put_length(out, begin, length);
}

fn put_length(out: &mut [u8], at: usize, length: usize) {
    let length = i32::try_from(length).expect("a message is shorter than 2 GiB");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn cstring(out: &mut Vec<u8>, text: &str) {
    debug_assert!(!text.as_bytes().contains(&0), "callers refuse NUL bytes");
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        build(&mut out);
        out
    }

    #[test]
    fn startup_has_the_protocol_version_and_pairs() {
        assert_eq!(
            bytes(|o| startup(o, &[("user", "u"), ("database", "d")])),
            b"\0\0\0\x1b\0\x03\0\0user\0u\0database\0d\0\0"
        );
    }

    #[test]
    fn ssl_request_is_eight_fixed_bytes() {
        assert_eq!(bytes(ssl_request), [0, 0, 0, 8, 4, 210, 22, 47]);
    }

    #[test]
    fn cancel_request_has_process_and_secret() {
        assert_eq!(
            bytes(|o| cancel_request(o, 258, &[9, 8, 7, 6])),
            [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 1, 2, 9, 8, 7, 6]
        );
    }

    #[test]
    fn password_ends_with_nul() {
        assert_eq!(bytes(|o| password(o, b"pw")), b"p\0\0\0\x07pw\0");
    }

    #[test]
    fn sasl_initial_response_counts_its_data() {
        assert_eq!(
            bytes(|o| sasl_initial_response(o, "M", b"xyz")),
            b"p\0\0\0\x0dM\0\0\0\0\x03xyz"
        );
    }

    #[test]
    fn sasl_response_is_the_bare_data() {
        assert_eq!(bytes(|o| sasl_response(o, b"xyz")), b"p\0\0\0\x07xyz");
    }

    #[test]
    fn query_is_a_string() {
        assert_eq!(bytes(|o| query(o, "X")), b"Q\0\0\0\x06X\0");
    }

    #[test]
    fn parse_has_name_text_and_no_types() {
        assert_eq!(
            bytes(|o| parse(o, "s1", "SELECT 1")),
            b"P\0\0\0\x12s1\0SELECT 1\0\0\0"
        );
    }

    #[test]
    fn close_names_a_statement() {
        assert_eq!(bytes(|o| close(o, "s1")), b"C\0\0\0\x08Ss1\0");
    }

    #[test]
    fn bind_is_binary_both_ways() {
        assert_eq!(
            bytes(|o| bind(o, "s1", 0, |_| {})),
            b"B\0\0\0\x12\0s1\0\0\x01\0\x01\0\0\0\x01\0\x01"
        );
        assert_eq!(
            bytes(|o| bind(o, "s1", 2, |o| {
                crate::wire::value::int4(o, 7);
                crate::wire::value::null(o);
            })),
            b"B\0\0\0\x1e\0s1\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01"
        );
    }

    #[test]
    fn execute_asks_for_all_rows_of_the_unnamed_portal() {
        assert_eq!(bytes(execute), b"E\0\0\0\x09\0\0\0\0\0");
    }

    #[test]
    fn messages_without_a_body_are_five_bytes() {
        assert_eq!(bytes(sync), b"S\0\0\0\x04");
        assert_eq!(bytes(copy_done), b"c\0\0\0\x04");
        assert_eq!(bytes(terminate), b"X\0\0\0\x04");
    }

    #[test]
    fn copy_data_is_not_interpreted() {
        assert_eq!(bytes(|o| copy_data(o, b"a\0b")), b"d\0\0\0\x07a\0b");
    }

    #[test]
    fn copy_fail_gives_a_reason() {
        assert_eq!(bytes(|o| copy_fail(o, "no")), b"f\0\0\0\x07no\0");
    }

    #[test]
    fn messages_are_appended_one_after_another() {
        let mut out = Vec::new();
        sync(&mut out);
        copy_done(&mut out);
        assert_eq!(out, b"S\0\0\0\x04c\0\0\0\x04");
    }
}
