//! All checks on a machine that is busy and stands still now and then, as a virtual machine does on a host that others share.

use std::{
    ffi::OsStr,
    fs,
    io::ErrorKind,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{cargo, of_no_package};

/// How many processes spend all the time they are given.
const BUSY_LOOPS: usize = 2;

/// The shell script of a busy loop. It ends with the program that has started it.
const BUSY_LOOP: &str = "while kill -0 $PPID; do :; done 2> /dev/null";

/// For how long everything stands still, as `sleep` is told.
const STANDSTILL: &str = "1.5";

/// How many seconds there are from one standstill to the next.
const BETWEEN: RangeInclusive<u64> = 8..=20;

/// The shell script by which a process joins the control group $0, and becomes the program that its other arguments name.
const JOIN: &str = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;

/// The shell script that stops all processes of the control group $0 for $1 seconds. An interrupt does not leave them stopped.
const STAND_STILL: &str =
    r#"trap "" INT HUP TERM; echo 1 > "$0/cgroup.freeze"; sleep "$1"; echo 0 > "$0/cgroup.freeze""#;

/// As many runs of `cargo xtask ci`, up to the first that fails.
pub(crate) fn soak(runs: u32) -> Result<()> {
    for number in 1..=runs {
        let standstills = one_run().with_context(|| format!("run {number} of {runs}"))?;
        eprintln!(
            "run {number} of {runs} passed beside {BUSY_LOOPS} busy loops, with {standstills} standstills of {STANDSTILL} s"
        );
    }
    Ok(())
}

/// One run, and how many times everything stood still in it.
fn one_run() -> Result<usize> {
    let group = ControlGroup::new()?;
    for _ in 0..BUSY_LOOPS {
        group.start("sh", &["-c", BUSY_LOOP])?;
    }
    let mut checks = group.start(cargo().get_program(), &["xtask", "ci"])?;
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(checks.wait()));
    let mut standstills = 0;
    let status = loop {
        match end.recv_timeout(Duration::from_secs(fastrand::u64(BETWEEN))) {
            Ok(status) => break status.context("waiting for cargo xtask ci")?,
            Err(_) => group.stand_still()?,
        }
        standstills += 1;
    };
    ensure!(status.success(), "cargo xtask ci: {status}, after {standstills} standstills");
    Ok(standstills)
}

/// A control group of the kernel (version 2): its processes, and all that they start, are stopped in one moment and killed in one.
struct ControlGroup {
    directory: PathBuf,
}

impl ControlGroup {
    fn new() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts").context("reading /proc/mounts")?;
        let hierarchy = mounts.lines().find_map(|mount| {
            let mut fields = mount.split(' ').skip(1);
            fields.next().filter(|_| fields.next() == Some("cgroup2"))
        });
        let hierarchy =
            hierarchy.context("no control groups (version 2) are mounted: `mount -t cgroup2 none DIRECTORY`")?;
        let directory = Path::new(hierarchy).join(format!("lock-soak-{}", std::process::id()));
        fs::create_dir(&directory)
            .with_context(|| format!("making the control group {}, which takes root", directory.display()))?;
        Ok(Self { directory })
    }

    /// Starts a process in the group.
    fn start(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<Child> {
        let program = program.as_ref();
        let mut command = of_no_package(Command::new("sh"));
        command.args(["-c", JOIN]).arg(&self.directory).arg(program).args(arguments);
        command.spawn().with_context(|| format!("starting {}", program.display()))
    }

    fn stand_still(&self) -> Result<()> {
        let mut command = Command::new("sh");
        let status = command.args(["-c", STAND_STILL]).arg(&self.directory).arg(STANDSTILL).status();
        ensure!(status.context("starting sh")?.success(), "{} could not be stopped", self.directory.display());
        Ok(())
    }
}

impl Drop for ControlGroup {
    /// Kills what is left in the group. The kernel removes a group when its last process has ended, which is soon after that.
    fn drop(&mut self) {
        let _ = fs::write(self.directory.join("cgroup.kill"), "1");
        while fs::remove_dir(&self.directory).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
            thread::yield_now();
        }
    }
}
