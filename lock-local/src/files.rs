//! The files of one lock, and what the kernel says about them.
//!
//! A contender is a file, called by its number, which its owner has locked (`flock(2)`) for as long as it lives. A file that
//! is not locked is a dead contender's and counts for nothing.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lock_core::{Contender as Shown, Error, LockName, Mode, Request, Snapshot, Wait, clock::wall_micros};
use rustix::{
    fs::{
        AtFlags, CWD, Dir, Mode as Rights, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_NOW, fstat, futimens,
        openat, renameat_with, statat, unlinkat,
    },
    io::{Errno, FdFlags, fcntl_setfd},
    path::Arg,
};

use crate::{Config, counter, trust};

/// How old a contender's file may look, in seconds: what cleans up takes what was not touched for some hours or days.
// Safeguard: a file that is held never looks forgotten (local)
const OLD: u64 = 3600;

/// For files: they are their owner's.
const PRIVATE: Rights = Rights::RUSR.union(Rights::WUSR);

/// The directory that has the contenders' files of one lock or one semaphore.
#[derive(Debug, Clone)]
pub(crate) struct LockDirectory {
    pub(crate) path: PathBuf,
    /// That of all locks.
    all: PathBuf,
    parts: Vec<String>,
    inherit: bool,
}

/// A contender and the number of the contender that it waits for; `None` means that it holds the lock.
pub(crate) type QueuePosition = (Arc<Contender>, Option<u64>);

/// A contender of this process: a file in the lock's directory that the kernel keeps locked, removed when this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) number: u64,
    mode: Mode,
    directory: LockDirectory,
    /// Locked.
    file: File,
    /// Whether it has given up its place, which it does once.
    has_left: AtomicBool,
}

impl LockDirectory {
    pub(crate) fn new(config: &Config, name: &LockName, semaphore: bool) -> Self {
        let (all, parts) = (config.directory.clone(), trust::parts(name, semaphore));
        Self { path: parts.iter().fold(all.clone(), |path, part| path.join(part)), all, parts, inherit: config.inherit }
    }

    pub(crate) fn file(&self, number: u64) -> PathBuf {
        self.path.join(called(number))
    }

    fn open(&self) -> io::Result<OwnedFd> {
        trust::open_lock(&self.all, &self.parts)
    }

    /// Enters, in one step that no other contender can come between; `None` while another is at the door. What refuses the
    /// request is an [`Error`] within the other.
    ///
    /// Who stands at the door (holds the lock of that file) takes a number that is higher than all before, and shows a
    /// file that is complete and locked, before the next may enter. So everybody finds all that came earlier.
    pub(crate) fn enter(&self, request: &Request) -> io::Result<Option<QueuePosition>> {
        self.enter_at(&self.open()?, request)
    }

    fn enter_at(&self, at: &OwnedFd, request: &Request) -> io::Result<Option<QueuePosition>> {
        let door = File::from(openat(at, "door", OFlags::RDWR | OFlags::CREATE | trust::HERE, PRIVATE)?);
        if is_locked(door.try_lock())? {
            return Ok(None);
        }
        let numbers = numbers(at)?;
        if let Some(asked) = request.mode.permits()
            && let Some(oldest) = self.live(at, numbers.iter()).next()
            && let Some(there) = oldest?.1.permits().filter(|there| *there != asked)
        {
            return Err(io::Error::other(Error::permits(&request.name, asked, there)));
        }
        let ahead = request.mode.waits_for(self.live(at, numbers.iter().rev()))?;
        if ahead.is_some() && request.wait == Wait::No {
            return Err(io::Error::other(Error::NotAcquired { name: request.name.clone() }));
        }

        let mut record = [0; counter::RECORD];
        let _ = door.read_at(&mut record, 0)?;
        // The clock and those who are there stand in for a counter that somebody deleted.
        // Safeguard: the clock stands in for a counter that was deleted (local)
        let floor = numbers.last().map_or(0, |last| last + 1).max(wall_micros());
        let (number, offset, slot) = counter::next(&record, floor);
        door.write_all_at(&slot, offset)?;
        let contender = self.appear(at, number, request)?;
        // Somebody who deleted the door may have let another one in beside us, who may have moved our file or theirs.
        let is_in = contender.is_there()? && is_at(&fstat(&door)?, CWD, self.path.join("door"))?;
        // Safeguard: only who stands at the present door is in (local)
        if !is_in {
            return Ok(None);
        }
        door.unlock()?;
        // Before the number is given out, so that no crash of the machine takes it back.
        door.sync_data()?;
        Ok(Some((Arc::new(contender), ahead)))
    }

    /// `all`, and who holds and who waits here.
    pub(crate) fn show(&self, mut all: Snapshot) -> io::Result<Snapshot> {
        // Nobody is shown where nobody ever was: a look makes no directory.
        if found(fs::symlink_metadata(&self.path))?.is_none() {
            return Ok(all);
        }
        let (at, mut ahead) = (self.open()?, Vec::new());
        for number in numbers(&at)? {
            let Some((mode, shown)) = self.read(&at, number)? else { continue };
            match mode.waits_for(ahead.iter().rev().copied().map(Ok::<_, io::Error>))? {
                None => all.holders.push(shown.with_token(number)),
                Some(_) => all.queue.push(shown),
            }
            ahead.push((number, mode));
        }
        Ok(all)
    }

    /// Removes the file of a contender that was just seen there. False when it is gone by now.
    fn remove(&self, number: u64) -> io::Result<bool> {
        Ok(found(fs::remove_file(self.file(number)))?.is_some())
    }

    /// Takes it from the holder with this number, by removing its file: no other contender's is ever called the same. Returns
    /// the holder as it was.
    pub(crate) fn revoke(&self, number: u64) -> io::Result<Option<Shown>> {
        let holder = self.show(Snapshot::default())?.holders.into_iter().find(|holder| holder.token == Some(number));
        Ok(if holder.is_some() && self.remove(number)? { holder } else { None })
    }

    /// The live ones of `numbers`. What the dead ones left is removed: no number is ever given twice.
    fn live<'a>(
        &self,
        at: &OwnedFd,
        numbers: impl Iterator<Item = &'a u64>,
    ) -> impl Iterator<Item = io::Result<(u64, Mode)>> {
        numbers.filter_map(move |number| {
            let read = self.read(at, *number).transpose();
            if read.is_none() {
                let _ = unlinkat(at, called(*number), AtFlags::empty());
            }
            Some(read?.map(|(mode, _)| (*number, mode)))
        })
    }

    /// What a live contender wrote; `None` when it is dead or gone. Whatever else keeps it from being read is an error:
    /// nobody is taken for dead without the kernel's word.
    fn read(&self, at: &OwnedFd, number: u64) -> io::Result<Option<(Mode, Shown)>> {
        let opened = openat(at, called(number), OFlags::RDONLY | trust::HERE, Rights::empty());
        let Some(mut file) = found(opened.map_err(io::Error::from))?.map(File::from) else { return Ok(None) };
        // Shared, and nobody waits for this lock: it is in nobody's way.
        // Safeguard: a contender that nobody has locked is dead (local)
        if !is_locked(file.try_lock_shared())? {
            return Ok(None);
        }
        let mut record = Vec::new();
        file.read_to_end(&mut record)?;
        let unknown = || io::Error::other(format!("{} is no contender", self.file(number).display()));
        parse(number, &record).ok_or_else(unknown).map(Some)
    }

    /// Makes the file of a contender. It is locked before it gets its name, so nobody ever takes it for a dead one's.
    fn appear(&self, at: &OwnedFd, number: u64, request: &Request) -> io::Result<Contender> {
        let mode = match request.mode {
            Mode::Permit { of } => of.to_string(),
            Mode::Read => "r".to_owned(),
            _ => "w".to_owned(),
        };
        let who = format!("{mode} {} {}\n", std::process::id(), wall_micros());
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | trust::HERE;
        let file = File::from(openat(at, "new", new, PRIVATE).or_else(|error| {
            // That of somebody who died at the door.
            if error != Errno::EXIST {
                return Err(error);
            }
            unlinkat(at, "new", AtFlags::empty())?;
            openat(at, "new", new, PRIVATE)
        })?);
        if self.inherit {
            fcntl_setfd(&file, FdFlags::empty())?;
        }
        file.lock()?;
        file.write_all_at(&[who.as_bytes(), &request.payload].concat(), 0)?;
        let contender =
            Contender { number, mode: request.mode, directory: self.clone(), file, has_left: AtomicBool::new(false) };
        // Never in the place of another: at the door that was deleted somebody may have taken the same number.
        // Safeguard: nobody takes the place of another with the same number (local)
        renameat_with(at, "new", at, called(number), RenameFlags::NOREPLACE)?;
        Ok(contender)
    }
}

impl Contender {
    /// Whom it waits for now. [`ErrorKind::NotFound`] when its file is no longer where it entered: it has no place then.
    pub(crate) fn ahead(&self) -> io::Result<Option<u64>> {
        let at = trust::reopen_lock(&self.directory.path)?;
        // Nobody is ahead in a directory that came in the place of its own, and what the dead left there is not its to remove.
        // Safeguard: a waiter removes nothing where its own file is not (local)
        self.must_be_in(&at)?;
        let numbers = numbers(&at)?;
        let ahead = numbers.iter().rev().filter(|number| **number < self.number);
        let ahead = self.mode.waits_for(self.directory.live(&at, ahead))?;
        // Whose file was deleted meanwhile has no place.
        self.must_be_in(&at)?;
        Ok(ahead)
    }

    /// [`ErrorKind::NotFound`] when its file is not in this directory.
    fn must_be_in(&self, at: &OwnedFd) -> io::Result<()> {
        let own_file_is_here = is_at(&self.own()?, at, called(self.number))?;
        // Safeguard: a waiter looks where its own file is (local)
        if own_file_is_here { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
    }

    /// Whether its file is still the one of its name.
    pub(crate) fn is_there(&self) -> io::Result<bool> {
        is_at(&self.own()?, CWD, self.directory.file(self.number))
    }

    /// What the kernel says of its file. One that looks old is touched, so that nobody who cleans up takes it for forgotten.
    fn own(&self) -> io::Result<Stat> {
        let own = fstat(&self.file)?;
        let written = u64::try_from(own.st_mtime).unwrap_or_default();
        if wall_micros() / 1_000_000 > written.saturating_add(OLD) {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let _ = futimens(&self.file, &Timestamps { last_access: now, last_modification: now });
        }
        Ok(own)
    }

    /// Goes on as a reader, in one write of one byte: whoever looks sees a writer or a reader.
    pub(crate) fn downgrade(&self) -> io::Result<()> {
        self.file.write_all_at(b"r", 0)
    }

    /// Gives up its place; false when that was gone already.
    pub(crate) fn leave(&self) -> bool {
        if self.has_left.swap(true, Ordering::Relaxed) {
            return false;
        }
        // Safeguard: who leaves removes no file that came in the place of its own (local)
        let there = self.is_there().unwrap_or(true);

        // Whoever removes the file has ended the grant: this one, or a forced release.
        let was_there = there && self.directory.remove(self.number).unwrap_or(true);
        // Should any of that have failed: without its lock it is a dead one's.
        let _ = self.file.unlock();
        was_there
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What the file of a contender is called.
fn called(number: u64) -> String {
    format!("{number:020}")
}

/// The files there are, lowest number first. A file that is there all the while is among them: `readdir(3)`.
fn numbers(at: &OwnedFd) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in Dir::read_from(at)? {
        numbers.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn parse(number: u64, record: &[u8]) -> Option<(Mode, Shown)> {
    let end = record.iter().position(|byte| *byte == b'\n')?;
    let mut words = str::from_utf8(&record[..end]).ok()?.split(' ');
    let mode = match words.next()? {
        "w" => Mode::Exclusive,
        "r" => Mode::Read,
        of => Mode::Permit { of: of.parse().ok()? },
    };
    let shown = Shown::new(format!("{number}-{}", words.next()?)).with_mode(mode);
    Some((mode, shown.with_since_micros(words.next()?.parse().ok()?).with_payload(&record[end + 1..])))
}

fn is_locked(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Err(TryLockError::WouldBlock) => Ok(true),
        other => Ok(other.map(|()| false)?),
    }
}

/// Whether the file of that name or path is this very one, and not another that came in its place.
fn is_at(own: &Stat, at: impl AsFd, path: impl Arg) -> io::Result<bool> {
    let there = found(statat(at, path, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from))?;
    Ok(there.is_some_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)))
}

/// `None` for what is not there, or there already: somebody deleted something under our hands.
pub(crate) fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    proptest::proptest! {
        #[test]
        fn whatever_stands_in_a_contenders_file_is_read_or_not_and_never_panics(
            record in proptest::prop_oneof![
                proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60),
                proptest::strategy::Strategy::prop_map("[wrx0-9+-]{0,12} ?[0-9a-z]{0,8} ?[0-9]{0,21}\n?.{0,4}", String::into_bytes),
            ]
        ) {
            if let Some((mode, shown)) = parse(7, &record) {
                proptest::prop_assert_eq!(shown.mode, Some(mode));
            }
        }
    }

    #[test]
    fn nobody_takes_the_place_of_another_that_took_the_same_number() {
        let directory = tempfile::tempdir().unwrap();
        let name = LockName::new("a").unwrap();
        let lock = LockDirectory::new(&Config::new(directory.path().join("locks")).unwrap(), &name, false);
        let (at, request) = (lock.open().unwrap(), Request::new(name, Mode::Exclusive));
        let holder = lock.appear(&at, 7, &request).unwrap();
        let late = lock.appear(&at, 7, &request);
        assert!(matches!(found(late), Ok(None)), "it is to try again");
        assert!(holder.is_there().unwrap());
    }

    #[test]
    fn a_waiter_has_no_place_in_a_directory_that_came_in_the_place_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let name = LockName::new("a").unwrap();
        let lock = LockDirectory::new(&Config::new(directory.path().join("locks")).unwrap(), &name, false);
        let request = Request::new(name, Mode::Exclusive);
        let [holder, waiter] = [(); 2].map(|()| lock.enter(&request).unwrap().unwrap().0);
        assert_eq!(waiter.ahead().unwrap(), Some(holder.number));

        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&lock.path, &elsewhere).unwrap();
        let is_gone = || waiter.ahead().unwrap_err().kind() == ErrorKind::NotFound;
        assert!(is_gone());
        fs::create_dir(&lock.path).unwrap();
        fs::set_permissions(&lock.path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(is_gone(), "nobody is ahead there, but it is not the directory of the waiter");
        let of_a_dead_one = lock.path.join(called(holder.number));
        fs::write(&of_a_dead_one, "").unwrap();
        assert!(is_gone());
        fs::remove_file(&of_a_dead_one).expect("it is for those to remove who wait in that directory");
        fs::set_permissions(&lock.path, fs::Permissions::from_mode(0o777)).unwrap();
        let is_refused = || waiter.ahead().unwrap_err().kind() == ErrorKind::Other;
        assert!(is_refused(), "others may write to it");
        fs::remove_dir(&lock.path).unwrap();
        symlink(&elsewhere, &lock.path).unwrap();
        assert!(is_refused(), "it is a link");
        fs::remove_file(&lock.path).unwrap();
        fs::rename(&elsewhere, &lock.path).unwrap();
        assert_eq!(waiter.ahead().unwrap(), Some(holder.number));
    }

    #[test]
    fn who_leaves_removes_no_file_that_came_in_the_place_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let name = LockName::new("a").unwrap();
        let lock = LockDirectory::new(&Config::new(directory.path().join("locks")).unwrap(), &name, false);
        let holder = lock.enter(&Request::new(name, Mode::Exclusive)).unwrap().unwrap().0;
        let place = lock.file(holder.number);
        fs::rename(&place, directory.path().join("elsewhere")).unwrap();
        fs::write(&place, "").unwrap();
        assert!(!holder.leave(), "it was gone");
        assert!(place.exists());
    }

    #[test]
    fn a_door_that_is_not_the_one_of_its_name_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        let name = LockName::new("a").unwrap();
        let lock = LockDirectory::new(&Config::new(directory.path().join("locks")).unwrap(), &name, false);
        // As for one who is at a door that was deleted meanwhile: the file that it has open is not the one of the name.
        let (at, request) = (lock.open().unwrap(), Request::new(name, Mode::Exclusive));
        fs::rename(&lock.path, directory.path().join("elsewhere")).unwrap();
        assert!(lock.enter_at(&at, &request).unwrap().is_none());
        assert!(lock.enter(&request).unwrap().is_some());
    }
}
