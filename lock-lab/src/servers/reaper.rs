//! What is left when this program is killed: a shell that waits for its end, and then clears up.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use crate::LabError;

/// Reads one directory a line. The end of the input is the end of this program, whatever ended it: then no process
/// with that working directory may go on, and the directory goes.
///
/// The kernel kills the servers already (see `process`); this catches one that was being started in that moment.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
dirs=
while read -r dir; do dirs="$dirs $dir"; done
for dir in $dirs; do
    [ -d "$dir" ] || continue
    for cwd in /proc/[0-9]*/cwd; do
        case "$(readlink "$cwd")" in "$dir"|"$dir"/*) pid="${cwd#/proc/}"; kill -KILL "${pid%/cwd}" ;; esac
    done
    rm -rf "$dir"
done
"#;

/// The shell's input; closed by the kernel when this program ends.
static REAPER: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Has `dir` removed when this program ends, if it is still there.
pub(crate) fn watch(dir: &Path) -> Result<(), LabError> {
    let mut reaper = REAPER.lock().unwrap_or_else(PoisonError::into_inner);
    let input = match reaper.as_mut() {
        Some(input) => input,
        None => reaper.insert(start()?),
    };
    writeln!(input, "{}", dir.display()).map_err(|source| LabError::io("telling the reaper about a directory", source))
}

fn start() -> Result<ChildStdin, LabError> {
    // A group of its own: Ctrl-C at a terminal must not end it before this program.
    let mut shell = Command::new("sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()
        .map_err(|source| LabError::io("starting sh", source))?;
    shell.stdin.take().ok_or(LabError::Missing { program: "sh", package: "dash" })
}
