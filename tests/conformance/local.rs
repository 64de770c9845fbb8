//! Locked files in a directory of their own. What the kernel keeps is asked of it here, past the backend.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::PathBuf,
};

use async_trait::async_trait;
use lock_core::{
    Error, LockName, Locks,
    conformance::{Down, Failure, Fixture, Kept, Severable},
};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct LocalFixture {
    directory: TempDir,
}

impl LocalFixture {
    pub(crate) fn new() -> Result<Self, String> {
        Ok(Self { directory: tempfile::tempdir().map_err(|error| error.to_string())? })
    }

    /// The files of the lock and of the semaphore of that name that belong to contenders, dead or alive.
    fn files(&self, name: &LockName) -> io::Result<Vec<PathBuf>> {
        let mut root = self.directory.path().to_owned();
        let component = name.to_component();
        let mut parts: Vec<_> = component.as_bytes().chunks(240).map(String::from_utf8_lossy).collect();
        let last = parts.pop().unwrap_or_default();
        root.extend(parts.into_iter().map(|part| format!("{part}.more")));
        let mut files = Vec::new();
        for kind in ["lock", "permits"] {
            match fs::read_dir(root.join(format!("{last}.{kind}"))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                entries => {
                    for entry in entries? {
                        files.extend(Some(entry?.path()).filter(|path| !path.ends_with("door")));
                    }
                }
            }
        }
        Ok(files)
    }
}

#[async_trait]
impl Fixture for LocalFixture {
    async fn connect(&self) -> Result<Locks, Failure> {
        let url = format!("local://{}", self.directory.path().display());
        Ok(lock::connect(&url).await?)
    }

    async fn connect_severable(&self) -> Result<Severable, Failure> {
        Err(Failure::new("nothing lies between a program and its kernel"))
    }

    async fn connect_to_down(&self, _down: Down) -> Result<Locks, Error> {
        Err(Error::no_answer("local", "the kernel is not down while a test runs"))
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Failure> {
        let files = self.files(name).map_err(|error| Failure::new(error.to_string()))?;
        Ok(files.into_iter().map(|file| file.display().to_string()).collect())
    }

    async fn delete(&self, name: &LockName) -> Result<(), Failure> {
        let deleted = self.files(name).and_then(|files| files.into_iter().try_for_each(fs::remove_file));
        deleted.map_err(|error| Failure::new(error.to_string()))
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, Failure> {
        let files = self.files(name).map_err(|error| Failure::new(error.to_string()))?;
        let called = |file: &PathBuf| file.file_name().and_then(|name| name.to_str()?.parse().ok()) == Some(token);
        let Some(file) = files.into_iter().find(called).and_then(|file| File::open(file).ok()) else {
            return Ok(Kept::Gone);
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Kept::Gone),
            Err(TryLockError::WouldBlock) => Ok(Kept::Held),
            Err(TryLockError::Error(error)) => Err(Failure::new(error.to_string())),
        }
    }
}
