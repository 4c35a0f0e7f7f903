//! What must not get into a record: passwords in the values of settings.

/// Settings whose whole value may be secret: connection strings and shell commands.
const SECRET: [&str; 6] = [
    "archive_cleanup_command",
    "archive_command",
    "primary_conninfo",
    "recovery_end_command",
    "restore_command",
    "ssl_passphrase_command",
];
const WORDS: [&str; 5] = ["passphrase", "passwd", "password", "secret", "token"];
const HIDDEN: &str = "(hidden)";

/// The value of a setting as a record may hold it.
pub fn without_secrets(name: &str, value: &str) -> String {
    let (name, lower) = (name.to_ascii_lowercase(), value.to_ascii_lowercase());
    let named = SECRET.contains(&name.as_str())
        // Of the server's own settings only `password_encryption` and its like have such a name.
        || name.contains('.') && WORDS.iter().any(|word| name.contains(word));
    let told = WORDS.iter().any(|word| lower.contains(&format!("{word}=")))
        || lower.contains("://") && lower.contains('@');
    if !value.is_empty() && (named || told) {
        HIDDEN.to_owned()
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for (name, value) in [
            ("primary_conninfo", "host=a password=b"),
            ("archive_command", "curl -u me:pw …"),
            ("my_extension.api_token", "abc"),
            ("my_extension.url", "https://me:pw@host/"),
            ("my_extension.connection", "host=a PASSWORD=b"),
        ] {
            assert_eq!(without_secrets(name, value), HIDDEN, "{name}");
        }
        for (name, value) in [
            ("shared_buffers", "16384"),
            ("password_encryption", "scram-sha-256"),
            ("primary_conninfo", ""),
            ("log_line_prefix", "%m [%p] %q%u@%d "),
        ] {
            assert_eq!(without_secrets(name, value), value, "{name}");
        }
    }
}
