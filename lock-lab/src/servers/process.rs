//! One server process, which never outlives this program.

use std::{
    env,
    fs::{self, File, Permissions},
    io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::reaper;
use crate::LabError;

/// The environment variable that names where servers keep their data, if not among the temporary files.
const DATA: &str = "LOCK_LAB_DATA";

/// The environment variable that, as `no`, spares ZooKeeper the wait until each transaction is on the disk.
const SYNC: &str = "LOCK_LAB_SYNC";

/// Whether servers wait until what they promise to keep is on the disk: so they do for whoever operates them, and in every
/// measurement. Without that they lose nothing either when they are killed, only when the machine is.
pub(crate) fn waits_for_disks() -> bool {
    env::var_os(SYNC).is_none_or(|said| said != "no")
}

/// A temporary directory: removed with this value, or by the reaper.
pub(crate) fn directory() -> Result<TempDir, LabError> {
    directory_in(&env::temp_dir())
}

/// A directory for a server's data, which is removed likewise. Where [`DATA`] names a file system in memory, the server waits for
/// no disk; nothing in it is executed.
pub(crate) fn data_directory() -> Result<TempDir, LabError> {
    directory_in(&env::var_os(DATA).map_or_else(env::temp_dir, PathBuf::from))
}

fn directory_in(place: &Path) -> Result<TempDir, LabError> {
    let dir = tempfile::Builder::new()
        .prefix("lock-lab-")
        // Local locks are kept in none that the group may write to, as the umask of many systems would have it.
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(place)
        .map_err(|source| LabError::io(format!("creating a directory in {}", place.display()), source))?;
    reaper::watch(dir.path())?;
    Ok(dir)
}

/// What a server has of the environment of whoever runs this program. The rest might be settings: etcd has one for each of its
/// arguments, the Java machine has `JAVA_TOOL_OPTIONS`.
const INHERITED: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"];

/// The running process of a server, killed and waited for when this value is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

/// The program, arguments and environment that a server is started with, again after each end.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// What to run.
    pub(crate) name: &'static str,
    /// The Debian package that has it.
    pub(crate) package: &'static str,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// What its environment has beside [`INHERITED`].
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Program {
    /// Starts it with `dir` as its working directory; it writes to `log` there.
    pub(crate) fn start(&self, dir: &Path) -> Result<Process, LabError> {
        let log = dir.join("log");
        let program = find(self.name).ok_or(LabError::Missing { program: self.name, package: self.package })?;
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|source| LabError::io(format!("opening {}", log.display()), source))?;
        let errors = output.try_clone().map_err(|source| LabError::io("opening a log twice", source))?;
        // The kernel is asked to kill the server when its parent ends: `setpriv` asks, then becomes the server.
        let mut command =
            Command::new(find("setpriv").ok_or(LabError::Missing { program: "setpriv", package: "util-linux" })?);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(&self.arguments)
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| env::var_os(name).map(|value| (name, value))))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // A group of its own: Ctrl-C at a terminal is for this program, which then takes its servers down.
            .process_group(0);
        let child = spawn(command).map_err(|source| LabError::io(format!("starting {}", self.name), source))?;
        Ok(Process { child, log })
    }
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), LabError> {
        // The child has not been waited for, so its id is still its own.
        let sent = Pid::from_raw(self.child.id().cast_signed()).map_or(Ok(()), |pid| kill_process(pid, signal));
        sent.map_err(|error| LabError::io(format!("sending {signal:?}"), error.into()))
    }

    /// The end of what it wrote, each line on a new one, for an error message.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].iter().map(|line| format!("\n    {line}")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Only fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first executable of that name on the path, or where Debian keeps programs of the administrator.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/bin", "/usr/sbin"].map(PathBuf::from));
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

/// A command for the spawning thread to start, and where the thread sends the child process.
type SpawnRequest = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Starts `command` from the one thread that lives as long as this program: "parent" in the death signal means the
/// *thread* that started the child (prctl(2)), and a test's own thread may end before its servers should.
fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<SpawnRequest>();
        let work = move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        };
        // Without a thread the channel is closed, which the send below reports.
        let _ = thread::Builder::new().name("lab-spawner".into()).spawn(work);
        orders
    });
    let (reply, result) = mpsc::sync_channel(1);
    let gone = || io::Error::other("the thread that starts servers could not be started");
    spawner.send((command, reply)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}
