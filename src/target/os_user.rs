//! As whom the server runs. PostgreSQL refuses root; started by root it runs as an unprivileged
//! user, otherwise as whoever we are.

use crate::problem::{IoContext, Problem};
use rustix::process::{Gid, Uid};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The user that servers run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OsUser {
    pub(crate) name: String,
    uid: u32,
    gid: u32,
    /// We are root and have to become this user.
    switch: bool,
}

impl OsUser {
    /// Root's choice: `PGDYNO_OS_USER`, else `postgres`, else `nobody`. Anybody else: itself.
    pub(crate) fn for_server() -> Result<OsUser, Problem> {
        let uid = rustix::process::geteuid();
        if !uid.is_root() {
            return Ok(OsUser {
                name: format!("user {}", uid.as_raw()),
                uid: uid.as_raw(),
                gid: rustix::process::getegid().as_raw(),
                switch: false,
            });
        }
        match std::env::var("PGDYNO_OS_USER") {
            Ok(name) if !name.is_empty() => Self::asked_for(&name),
            _ => ["postgres", "nobody"]
                .iter()
                .find_map(|name| look_up(name))
                .ok_or_else(|| {
                    Problem::environment(
                        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody",
                    )
                    .hint("name an unprivileged user with PGDYNO_OS_USER, or do not run as root")
                }),
        }
    }

    fn asked_for(name: &str) -> Result<OsUser, Problem> {
        let user = look_up(name).ok_or_else(|| {
            Problem::environment(format!("PGDYNO_OS_USER: there is no user \"{name}\""))
                .hint("name an existing unprivileged user, such as postgres or nobody")
        })?;
        if user.uid == 0 {
            return Err(
                Problem::environment("PGDYNO_OS_USER: PostgreSQL does not run as root")
                    .hint("name an unprivileged user, such as postgres or nobody"),
            );
        }
        Ok(user)
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// A command that runs as this user, without supplementary groups and without the variables
    /// that libpq and the server would read.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if self.switch {
            // The standard library drops all supplementary groups along with root's uid.
            command.gid(self.gid).uid(self.uid);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .current_dir("/");
        command
    }

    /// Gives `path` to this user.
    pub(crate) fn own(&self, path: &Path) -> Result<(), Problem> {
        if !self.switch {
            return Ok(());
        }
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid)).or_problem(format_args!(
            "give {} to {}",
            path.display(),
            self.name
        ))
    }

    /// Runs `work` with this user's rights, on a thread that ends with it: on Linux credentials
    /// belong to threads.
    pub(crate) fn act<T: Send>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> std::io::Result<T> {
        if !self.switch {
            return work();
        }
        let become_user = || -> std::io::Result<()> {
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_gid(Gid::from_raw(self.gid))?;
            rustix::thread::set_thread_uid(Uid::from_raw(self.uid))?;
            Ok(())
        };
        std::thread::scope(|scope| {
            scope
                .spawn(|| become_user().and_then(|()| work()))
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Can this user get to `path`, or to the nearest ancestor of it that exists? Nothing is
    /// created.
    pub(crate) fn check_reaches(&self, path: &Path) -> Result<(), Problem> {
        let Some(existing) = path.ancestors().find(|p| p.exists()) else {
            return Ok(());
        };
        // "x/." needs the right to search x, not only its parents.
        self.act(|| existing.join(".").symlink_metadata())
            .map_or_else(
                |error| {
                    Err(Problem::environment(format!(
                        "the server would run as {} (not as root), who cannot reach {}: {error}",
                        self.name,
                        existing.display()
                    ))
                    .hint(
                        "set PGDYNO_HOME to a directory that everybody may enter, such as \
                     /var/lib/pgdyno, or name a user that can with PGDYNO_OS_USER",
                    ))
                },
                |_| Ok(()),
            )
    }
}

/// A user by name, or by `uid` or `uid:gid` in numbers.
fn look_up(name: &str) -> Option<OsUser> {
    let user = |uid, gid| {
        Some(OsUser {
            name: name.to_owned(),
            uid,
            gid,
            switch: true,
        })
    };
    let (uid, gid) = name.split_once(':').unwrap_or((name, name));
    if let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) {
        return user(uid, gid);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let local = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            [found, _, uid, gid, ..] if found == name => {
                Some((uid.parse().ok()?, gid.parse().ok()?))
            }
            _ => None,
        }
    });
    // Users that live in a directory service.
    let (uid, gid) = local.or_else(|| Some((id("-u", name)?, id("-g", name)?)))?;
    user(uid, gid)
}

fn id(option: &str, name: &str) -> Option<u32> {
    let output = Command::new("id")
        .args([option, "--", name])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let nobody = look_up("nobody").unwrap();
        assert_ne!(nobody.uid, 0);
        let by_number = look_up("65534:65533").unwrap();
        assert_eq!((by_number.uid, by_number.gid), (65534, 65533));
        assert_eq!(look_up("no such user"), None);
    }

    #[test]
    fn root_is_no_user_for_a_server() {
        assert_eq!(OsUser::asked_for("root").unwrap_err().exit_code(), 3);
        assert_eq!(OsUser::asked_for("0").unwrap_err().exit_code(), 3);
        assert_eq!(
            OsUser::asked_for("no such user").unwrap_err().exit_code(),
            3
        );
    }

    #[test]
    fn a_directory_that_the_servers_user_cannot_enter_is_found_out() {
        let user = OsUser::for_server().unwrap();
        if !user.switch {
            return user.check_reaches(Path::new("/nowhere/at/all")).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(directory.path(), private).unwrap();
        let inside = directory.path().join("home/clusters");
        let problem = user.check_reaches(&inside).unwrap_err();
        assert!(problem.message.contains(directory.path().to_str().unwrap()));
        user.own(directory.path()).unwrap();
        user.check_reaches(&inside).unwrap();
        assert!(
            rustix::process::geteuid().is_root(),
            "only the thread changed"
        );
    }
}
