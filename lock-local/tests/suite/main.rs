//! What the tests of this crate have in common is built once: they are one program.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

mod local;
mod rules;
mod shared;

/// A directory that only this user may write to, whatever the umask of who runs the tests.
fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().expect("a temporary directory")
}
