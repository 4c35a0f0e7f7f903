//! Where everything lives.

use super::files;
use super::os_user::OsUser;
use crate::problem::Problem;
use std::path::{Path, PathBuf};

/// Maven Central, where the embedded builds are published.
const MAVEN_URL: &str = "https://repo1.maven.org/maven2";

/// The directories that the target works in, and where builds come from. Usually all below
/// [`home`]; apart from each other in tests.
#[derive(Clone, Debug)]
pub struct Places {
    /// Fetched builds, one directory for each version.
    pub builds: PathBuf,
    /// One directory for each cluster.
    pub clusters: PathBuf,
    /// A Maven repository: `https://…`, `file://…` or a directory.
    pub maven_url: String,
}

impl Places {
    /// Below [`home`]; the repository from `PGDYNO_MAVEN_URL`.
    pub fn standard() -> Result<Places, Problem> {
        let home = home()?;
        Ok(Places {
            builds: home.join("postgres"),
            clusters: home.join("clusters"),
            maven_url: std::env::var("PGDYNO_MAVEN_URL")
                .ok()
                .filter(|url| !url.is_empty())
                .unwrap_or_else(|| MAVEN_URL.to_owned()),
        })
    }

    /// Makes the directories, once it is certain that the server's user gets there.
    pub(crate) fn prepare(&self, user: &OsUser) -> Result<(), Problem> {
        for place in [&self.builds, &self.clusters] {
            user.check_reaches(place)?;
        }
        for place in [&self.builds, &self.clusters] {
            files::make_directories(place).map_err(|problem| {
                problem.hint("set PGDYNO_HOME to a directory that you may write to")
            })?;
        }
        Ok(())
    }
}

/// `PGDYNO_HOME`, else `/var/lib/pgdyno` for root, else `pgdyno` in the XDG data home.
pub fn home() -> Result<PathBuf, Problem> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(home) = variable("PGDYNO_HOME") {
        return std::path::absolute(&home).map_err(|error| {
            Problem::environment(format!("PGDYNO_HOME {}: {error}", home.display()))
        });
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/pgdyno"));
    }
    // The XDG specification: a relative path is to be ignored.
    variable("XDG_DATA_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("pgdyno"))
        .ok_or_else(|| {
            Problem::environment("neither PGDYNO_HOME nor HOME is set")
                .hint("set PGDYNO_HOME to a directory for servers, clusters and runs")
        })
}

/// An FNV-1a hash as six hexadecimal digits, to tell paths apart in short names.
pub(crate) fn short_hash(path: &Path) -> String {
    let hash = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{:06x}", (hash ^ (hash >> 24) ^ (hash >> 48)) & 0xff_ffff)
}
