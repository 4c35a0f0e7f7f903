//! Passwords given on the command line do not stay visible in `ps`.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

/// Overwrites the process title where an argument carries a password. The arguments that the
/// program works with were copied by the runtime and stay whole. Best effort: where the kernel
/// refuses, nothing changes.
pub(super) fn passwords_from_process_title() {
    if let Ok(title) = fs::read("/proc/self/cmdline")
        && let Some(start) = title_address()
    {
        let scrubbed = without_passwords(&title);
        if scrubbed != title
            && let Ok(memory) = OpenOptions::new().write(true).open("/proc/self/mem")
        {
            let _ = memory.write_all_at(&scrubbed, start);
        }
    }
}

/// `arg_start`, field 48 of `/proc/self/stat`.
fn title_address() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the command in parentheses and may hold blanks.
    let rest = stat.rsplit_once(')')?.1;
    rest.split_whitespace().nth(45)?.parse().ok()
}

/// The same number of bytes, with every password replaced by `x`.
fn without_passwords(title: &[u8]) -> Vec<u8> {
    let mut out = title.to_vec();
    for argument in out.split_mut(|&b| b == 0) {
        scrub_keyword(argument, b"password");
        scrub_keyword(argument, b"sslpassword");
        scrub_uri(argument);
    }
    out
}

/// `password = 'secret'` in a keyword string, `?password=secret` in a URI.
fn scrub_keyword(argument: &mut [u8], keyword: &[u8]) {
    let mut at = 0;
    while let Some(found) = find(&argument[at..], keyword) {
        let mut i = at + found + keyword.len();
        at = i;
        while argument.get(i).is_some_and(u8::is_ascii_whitespace) {
            i += 1;
        }
        if argument.get(i) != Some(&b'=') {
            continue;
        }
        i += 1;
        while argument.get(i).is_some_and(u8::is_ascii_whitespace) {
            i += 1;
        }
        let quoted = argument.get(i) == Some(&b'\'');
        if quoted {
            i += 1;
        }
        while let Some(&byte) = argument.get(i) {
            let end = if quoted {
                byte == b'\''
            } else {
                byte.is_ascii_whitespace() || byte == b'&'
            };
            if end {
                break;
            }
            argument[i] = b'x';
            // A backslash escapes the next byte.
            if byte == b'\\' && i + 1 < argument.len() {
                i += 1;
                argument[i] = b'x';
            }
            i += 1;
        }
        at = i;
    }
}

/// `postgresql://user:secret@host`.
fn scrub_uri(argument: &mut [u8]) {
    let Some(scheme) = find(argument, b"postgres") else {
        return;
    };
    let Some(slashes) = find(&argument[scheme..], b"://") else {
        return;
    };
    let start = scheme + slashes + 3;
    let end = argument[start..]
        .iter()
        .position(|&b| b == b'/' || b == b'?')
        .map_or(argument.len(), |n| start + n);
    let Some(at) = argument[start..end].iter().rposition(|&b| b == b'@') else {
        return;
    };
    let Some(colon) = argument[start..start + at].iter().position(|&b| b == b':') else {
        return;
    };
    argument[start + colon + 1..start + at].fill(b'x');
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_password_is_overwritten() {
        for (title, scrubbed) in [
            (
                "run\0--target\0host=a password=secret user=b\0",
                "run\0--target\0host=a password=xxxxxx user=b\0",
            ),
            (
                "--target=password = 'se cret' user=b\0",
                "--target=password = 'xxxxxxx' user=b\0",
            ),
            ("password='a\\'b c'\0", "password='xxxxxx'\0"),
            (
                "postgresql://u:secret@h/db\0",
                "postgresql://u:xxxxxx@h/db\0",
            ),
            (
                "postgres://u:a@b@h:1/db?x=1\0",
                "postgres://u:xxx@h:1/db?x=1\0",
            ),
            (
                "postgres://h/db?password=secret&user=b\0",
                "postgres://h/db?password=xxxxxx&user=b\0",
            ),
            ("postgres://u@h/db\0", "postgres://u@h/db\0"),
            ("run\0tpcc\0", "run\0tpcc\0"),
        ] {
            let out = without_passwords(title.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), scrubbed);
        }
    }
}
