//! Accounts of the operating system.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What the user database says of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) home: PathBuf,
}

/// Looks a user up, wherever the system keeps its users (files, LDAP …).
pub(super) fn by_uid(uid: u32) -> Option<Account> {
    let mut buffer = vec![0; 16 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: all zeros is a valid `passwd` (null pointers and numbers).
    #[allow(unsafe_code, reason = "there is no safe getpwuid_r")]
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    // SAFETY: the pointers are valid for the call, and the length is that of the buffer.
    #[allow(unsafe_code, reason = "there is no safe getpwuid_r")]
    let status = unsafe {
        libc::getpwuid_r(
            uid,
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: on success the strings of `entry` end with NUL and lie in `buffer`, still alive.
    #[allow(unsafe_code, reason = "there is no safe getpwuid_r")]
    let (name, home) = unsafe { (CStr::from_ptr(entry.pw_name), CStr::from_ptr(entry.pw_dir)) };
    Some(Account {
        name: name.to_str().ok()?.to_owned(),
        home: PathBuf::from(OsStr::from_bytes(home.to_bytes())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_0_is_root() {
        assert_eq!(by_uid(0).unwrap().name, "root");
        assert_eq!(by_uid(4_294_000_000), None);
    }
}
