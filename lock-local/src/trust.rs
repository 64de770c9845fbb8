//! Which directories locks are kept in, and how they are opened.
//!
//! Whoever may put something into a directory can put a link there, and lead whoever opens it by its name to another file. So
//! a directory of locks belongs to this user or to root, and nobody else may write to it; what is in it is opened below the
//! directory that was looked at, and never through a link. A waiter opens the directory of its lock again by its whole path, and
//! goes by what is in it only where its own file is. A contender removes its own file by its path, where it has just found
//! that very file: nobody else can have put it there. The directory of all locks alone may be everybody's, as
//! `/run/lock` is, if it is sticky: then each user's directories in it are safe from the others.

use std::{
    fs::DirBuilder,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::DirBuilderExt as _,
    },
    path::Path,
};

use lock_core::{Error, LockName};
use rustix::{
    fs::{CWD, Mode, OFlags, fstat, fstatfs, mkdirat, openat},
    io::Errno,
    process::geteuid,
};

/// The longest part of a name that one directory is called by; file systems take 255 bytes.
const LONGEST: usize = 240;

/// NFS, SMB (three of them), AFS, Ceph, Coda: `statfs(2)`. A lock there is another thing, and there is no news of others.
const REMOTE: [u64; 7] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x5346_414f, 0x00c3_6400, 0x7375_7245];

/// For what is opened in a directory: no link, no waiting for the other end of a pipe, nothing that other programs get.
// Safeguard: no link is followed at the door or in the place of a contender (local)
pub(crate) const HERE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Makes the directory of all locks if it is missing, and looks whether locks can be kept in it.
pub(crate) fn make(path: &Path) -> io::Result<OwnedFd> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let directory = open(path)?;
    #[allow(clippy::useless_conversion, reason = "the number has another width on other platforms")]
    let kind = u64::from_ne_bytes(i64::from(fstatfs(&directory)?.f_type).to_ne_bytes()) & u64::from(u32::MAX);
    if REMOTE.contains(&kind) {
        return Err(refused(path, "a directory on a file system of this machine, and none of a network's"));
    }
    Ok(directory)
}

/// Opens the directory of all locks.
fn open(path: &Path) -> io::Result<OwnedFd> {
    trusted(CWD, path, path, OFlags::empty(), true)
}

/// Opens the directory of one lock, or of one semaphore, in that of all; makes both if they are missing.
pub(crate) fn open_lock(all: &Path, parts: &[String]) -> io::Result<OwnedFd> {
    let mut path = all.to_path_buf();
    let mut directory = or_make(open(all), || make(all))?;
    for part in parts {
        path.push(part);
        // Safeguard: no link is followed in the place of the directory of a lock (local)
        let open = || trusted(&directory, Path::new(part), &path, OFlags::NOFOLLOW, false);
        directory = or_make(open(), || {
            // Safeguard: what is made is for this user alone (local)
            match mkdirat(&directory, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(error) => Err(error.into()),
            }
        })?;
    }
    Ok(directory)
}

/// Opens the directory of one lock, or of one semaphore, by its whole path. It is judged as [`open_lock`] judges it, but
/// those that it is in are not: only who finds a file of its own in it knows that it is the right one.
pub(crate) fn reopen_lock(path: &Path) -> io::Result<OwnedFd> {
    trusted(CWD, path, path, OFlags::NOFOLLOW, false)
}

/// A directory that was opened, or that `make` makes because there was none.
fn or_make(opened: io::Result<OwnedFd>, make: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(),
        other => other,
    }
}

/// What the directories of a lock are called, each in the one before.
pub(crate) fn parts(name: &LockName, semaphore: bool) -> Vec<String> {
    // A component has no dot, so neither a part of a longer name nor the other kind is ever called the same.
    let component = name.to_component();
    let (parts, last) = component.split_at((component.len() - 1) / LONGEST * LONGEST);
    let parts = parts.as_bytes().chunks(LONGEST).map(|part| LockPart::More.called(&String::from_utf8_lossy(part)));
    parts.chain([LockPart::Last { semaphore }.called(last)]).collect()
}

/// Which part of a name a directory is called by: one that others follow, or the last one, of a lock or of a semaphore.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LockPart {
    More,
    Last { semaphore: bool },
}

impl LockPart {
    const fn ending(self) -> &'static str {
        match self {
            Self::More => ".more",
            Self::Last { semaphore: false } => ".lock",
            Self::Last { semaphore: true } => ".permits",
        }
    }

    fn called(self, part: &str) -> String {
        [part, self.ending()].concat()
    }

    /// The part of a name and which one it is, of a directory that is called so.
    pub(crate) fn read(called: &str) -> Option<(&str, Self)> {
        [Self::More, Self::Last { semaphore: false }, Self::Last { semaphore: true }]
            .into_iter()
            .find_map(|part| Some((called.strip_suffix(part.ending())?, part)))
    }
}

/// Opens the directory of that name, which is `path`, if nobody but root and this user can have put there what is in it.
fn trusted(at: impl AsFd, name: &Path, path: &Path, how: OFlags, shared: bool) -> io::Result<OwnedFd> {
    let user = geteuid().as_raw();
    let refusal = || {
        let others = "which neither its group nor others may write to (chmod go-w)";
        let sticky = if shared { " unless it is sticky" } else { "" };
        let whose = format!("a directory of user {user} or of root");
        refused(path, &format!("{whose}, {others}{sticky}; locks that several users share are a lock service's"))
    };
    let directory = match openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | how, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => return Err(refusal()),
        Err(error) => return Err(error.into()),
    };
    let is = fstat(&directory)?;
    let mode = Mode::from_raw_mode(is.st_mode);
    let is_closed = !mode.intersects(Mode::WGRP | Mode::WOTH) || (shared && mode.contains(Mode::SVTX));
    // Safeguard: no directory is used that others may write to (local)
    // Safeguard: no directory of another user is used (local)
    if is_closed && (is.st_uid == user || is.st_uid == 0) { Ok(directory) } else { Err(refusal()) }
}

fn refused(path: &Path, allowed: &str) -> io::Error {
    io::Error::other(Error::config("path", path.display().to_string(), allowed))
}
