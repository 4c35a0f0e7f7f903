//! PostgreSQL versions: as users ask for them, as archives and servers call themselves.

use crate::problem::Problem;
use std::fmt;

/// The newest stable major release this pgdyno knows; the default.
pub(crate) const NEWEST_MAJOR: u32 = 18;

/// The version of a build. Fields compare in the order of age.
///
/// Since 10 a release is `major.minor`, before it was `9.6.minor`; the archives add a number of
/// their own (`14.10.1`) and sometimes a revision (`13.1.0-1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    first: u32,
    second: u32,
    third: u32,
    revision: u32,
}

impl Version {
    /// Reads `14.13`, `14.13.0`, `13.1.0-1`, `9.6.24`; also `15.3 (Debian …)`, `19devel`.
    pub(crate) fn parse(text: &str) -> Option<Version> {
        let word = text.split_whitespace().next()?;
        let end = word
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'))
            .unwrap_or(word.len());
        let (numbers, revision) = word[..end].split_once('-').unwrap_or((&word[..end], "0"));
        let mut parts = [0; 3];
        for (i, part) in numbers.split('.').enumerate() {
            *parts.get_mut(i)? = part.parse().ok()?;
        }
        Some(Version {
            first: parts[0],
            second: parts[1],
            third: parts[2],
            revision: revision.parse().ok()?,
        })
    }

    /// `18`, `9.6`: what a data directory's `PG_VERSION` holds.
    pub(crate) fn major(self) -> String {
        if self.first >= 10 {
            self.first.to_string()
        } else {
            format!("{}.{}", self.first, self.second)
        }
    }

    /// Before 10 the password method `scram-sha-256` did not exist.
    pub(crate) fn has_scram(self) -> bool {
        self.first >= 10
    }

    /// Older than anything that is supported (9.6).
    pub(crate) fn too_old(self) -> bool {
        (self.first, self.second) < (9, 6)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.first, self.second, self.third)?;
        match self.revision {
            0 => Ok(()),
            revision => write!(f, "-{revision}"),
        }
    }
}

/// What `--pg` asks for: a major release, a minor one, or one exact archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    text: String,
    /// Numbers that must agree, from the left.
    prefix: Vec<u32>,
    revision: Option<u32>,
}

impl Wanted {
    /// The newest release of the newest major known.
    pub(crate) fn newest() -> Wanted {
        Wanted {
            text: NEWEST_MAJOR.to_string(),
            prefix: vec![NEWEST_MAJOR],
            revision: None,
        }
    }

    /// Reads `14`, `9.6`, `14.13`, `14.13.0`, `13.1.0-1`.
    ///
    /// # Errors
    /// A usage problem for what is not a version, or a major release that is not supported.
    pub(crate) fn parse(text: &str) -> Result<Wanted, Problem> {
        let malformed = || {
            Problem::usage(format!("\"{text}\" is not a PostgreSQL version"))
                .hint("--pg takes a version such as 18, 14.13 or 9.6, or the word found")
        };
        let (numbers, revision) = match text.split_once('-') {
            Some((numbers, revision)) => {
                (numbers, Some(revision.parse().map_err(|_| malformed())?))
            }
            None => (text, None),
        };
        let prefix = numbers
            .split('.')
            .map(|part| part.parse().map_err(|_| malformed()))
            .collect::<Result<Vec<u32>, Problem>>()?;
        if prefix.len() > 3 || (revision.is_some() && prefix.len() < 3) || prefix == [9] {
            return Err(malformed());
        }
        let wanted = Wanted {
            text: text.to_owned(),
            prefix,
            revision,
        };
        wanted.supported().map(|()| wanted)
    }

    fn supported(&self) -> Result<(), Problem> {
        let first = self.prefix[0];
        let second = self.prefix.get(1).copied().unwrap_or(0);
        if first > NEWEST_MAJOR {
            let message = format!(
                "PostgreSQL {} is newer than this pgdyno knows (9.6 to {NEWEST_MAJOR})",
                self.text
            );
            return Err(Problem::usage(message)
                .hint("use your own build of it with --pg-bindir or a running one with --target"));
        }
        if first < 9 || (first == 9 && second < 6) {
            return Err(too_old(&self.text));
        }
        Ok(())
    }

    /// Is `version` what was asked for?
    pub(crate) fn accepts(&self, version: Version) -> bool {
        let numbers = [version.first, version.second, version.third];
        numbers.starts_with(&self.prefix) && self.revision.is_none_or(|r| r == version.revision)
    }

    /// The newest of `versions` that is what was asked for.
    pub(crate) fn best(&self, versions: impl IntoIterator<Item = Version>) -> Option<Version> {
        versions.into_iter().filter(|v| self.accepts(*v)).max()
    }

    /// The major release asked for.
    pub(crate) fn major(&self) -> String {
        match self.prefix[..] {
            [9, second, ..] => format!("9.{second}"),
            [first, ..] => first.to_string(),
            [] => String::new(),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The refusal of a release before 9.6.
pub(crate) fn too_old(version: &str) -> Problem {
    Problem::usage(format!(
        "PostgreSQL {version} is too old: 9.6 is the oldest that pgdyno supports"
    ))
    .hint("choose a version from 9.6 on; `pgdyno server versions` lists them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_are_read_as_archives_and_servers_write_them() {
        for (text, display, major) in [
            ("18.6.0", "18.6.0", "18"),
            ("14.13", "14.13.0", "14"),
            ("13.1.0-1", "13.1.0-1", "13"),
            ("9.6.24", "9.6.24", "9.6"),
            ("15.15 (Debian 15.15-0+deb12u1)", "15.15.0", "15"),
            ("19devel", "19.0.0", "19"),
            ("18beta1", "18.0.0", "18"),
        ] {
            assert_eq!(version(text).to_string(), display);
            assert_eq!(version(text).major(), major);
        }
        for text in ["", "x", "14.", "1.2.3.4", "14.1-x"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_newest_release_that_fits_is_chosen() {
        let all = [
            "9.6.10", "9.6.24", "13.1.0", "13.1.0-1", "14.9.0", "14.10.0", "14.10.1",
        ];
        for (wanted, best) in [
            ("14", Some("14.10.1")),
            ("14.10", Some("14.10.1")),
            ("14.10.0", Some("14.10.0")),
            ("14.9", Some("14.9.0")),
            ("13.1.0", Some("13.1.0-1")),
            ("13.1.0-1", Some("13.1.0-1")),
            ("9.6", Some("9.6.24")),
            ("9.6.10", Some("9.6.10")),
            ("14.11", None),
            ("12", None),
        ] {
            let best_found = Wanted::parse(wanted).unwrap().best(all.map(version));
            assert_eq!(best_found, best.map(version), "{wanted}");
        }
    }

    #[test]
    fn what_is_no_supported_version_is_refused() {
        for text in [
            "", "9", "x", "14.", "14.1.2.3", "14-1", "14.1.0-x", "-14", "99", "19", "9.5", "8.4",
            "0",
        ] {
            let problem = Wanted::parse(text).unwrap_err();
            assert_eq!(problem.exit_code(), 2, "{text}");
            assert!(problem.hint.is_some(), "{text}");
        }
        assert_eq!(Wanted::parse("9.6.3").unwrap().major(), "9.6");
        assert_eq!(Wanted::newest().major(), "18");
    }
}
