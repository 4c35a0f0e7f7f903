//! Files written so that nobody ever sees half of one, and directories with sane modes.

use crate::problem::{IoContext, Problem};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Replaces `path` by `content` in one step: temporary file, fsync, rename.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), Problem> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let write = || {
        // A leftover of a killed writer; the caller holds the lock of the directory.
        let _ = fs::remove_file(&temporary);
        let mut file = File::create_new(&temporary)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write()
        .inspect_err(|_| drop(fs::remove_file(&temporary)))
        .or_problem(format_args!("write {}", path.display()))
}

/// Makes `path` and its missing parents, whatever the umask, readable by everybody: a server that
/// is started by root runs as another user and must get there.
pub(crate) fn make_directories(path: &Path) -> Result<(), Problem> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    make_directory(path, 0o755)
}

/// Makes one directory with exactly `mode`; one that is there already is left as it is.
pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<(), Problem> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
    .or_problem(format_args!("create the directory {}", path.display()))
}

/// Removes a file, or a directory with everything in it; nothing there is fine.
pub(crate) fn remove(path: &Path) -> Result<(), Problem> {
    let result = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
    .or_problem(format_args!("remove {}", path.display()))
}

/// Names in `directory`; none when it does not exist.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_in_one_step_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        make_directories(path.parent().unwrap()).unwrap();
        replace(&path, b"one", 0o600).unwrap();
        File::create(directory.path().join("a/b.new")).unwrap();
        replace(&path, b"two", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(names(path.parent().unwrap()), ["b"]);
        remove(path.parent().unwrap()).unwrap();
        remove(path.parent().unwrap()).unwrap();
        assert!(names(path.parent().unwrap()).is_empty());
    }

    #[test]
    fn an_impossible_place_is_named() {
        let problem = make_directories(Path::new("/proc/nowhere/x")).unwrap_err();
        assert!(problem.message.contains("/proc/nowhere"), "{problem}");
        let problem = replace(Path::new("/proc/nowhere"), b"", 0o600).unwrap_err();
        assert_eq!(problem.exit_code(), 3);
    }
}
