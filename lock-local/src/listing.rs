//! A list of the locks in a directory, read off what their directories are called.

use std::{collections::BTreeSet, fs, io, path::Path};

use lock_core::{Error, LockName, Snapshot};

use crate::{
    Config,
    files::{LockDirectory, found},
    trust::LockPart,
};

/// The names that begin with `prefix` and have a holder. Another user's locks are left out.
pub(crate) fn held(config: &Config, prefix: &str) -> io::Result<BTreeSet<LockName>> {
    let mut names = BTreeSet::new();
    read(config, prefix, &config.directory, "", &mut names)?;
    Ok(names)
}

/// Reads one directory, whose path so far spells the escaped beginning of names.
fn read(config: &Config, prefix: &str, path: &Path, so_far: &str, names: &mut BTreeSet<LockName>) -> io::Result<()> {
    let Some(entries) = found(fs::read_dir(path))? else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        // No link is followed, here as everywhere.
        if !found(entry.file_type())?.is_some_and(|kind| kind.is_dir()) {
            continue;
        }
        let called = entry.file_name();
        let Some((component, part)) = called.to_str().and_then(LockPart::read) else { continue };
        let component = [so_far, component].concat();
        match part {
            LockPart::More => read(config, prefix, &entry.path(), &component, names)?,
            LockPart::Last { semaphore } => {
                let name = LockName::from_component(&component).filter(|name| name.as_str().starts_with(prefix));
                if let Some(name) = name
                    && is_held(&LockDirectory::new(config, &name, semaphore))?
                {
                    names.insert(name);
                }
            }
        }
    }
    Ok(())
}

fn is_held(directory: &LockDirectory) -> io::Result<bool> {
    match directory.show(Snapshot::default()) {
        // A directory that is refused is another user's, who shares no locks with this one.
        Err(error) if matches!(error.get_ref(), Some(inner) if inner.is::<Error>()) => Ok(false),
        shown => Ok(!shown?.holders.is_empty()),
    }
}
