//! Example programs as child processes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use lock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// Far beyond what anything takes that must happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// How often something is looked at that announces nothing.
const LOOK: Duration = Duration::from_millis(20);

/// The file of an example, which cargo builds beside the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).expect("cargo's directory of this profile");
    let program = target.join("examples").join(name);
    assert!(program.exists(), "the example is not built: cargo build --all-features --example {name}");
    program
}

/// A running example.
pub(crate) struct Example {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Example {
    /// Starts an example whose locks are those of `url`.
    pub(crate) fn start(name: &str, url: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program(name));
        command.args(arguments).env_remove("LOCK_CONFIG").env("LOCK_URL", url);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the example runs");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that the example writes.
    pub(crate) async fn line(&mut self) -> String {
        let line = Clock::boot().timeout(LIMIT, self.lines.next_line()).await.expect("a line in time");
        line.unwrap().expect("a line before the end")
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().expect("it runs").cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Lets an example go on that waits for a line of input.
    pub(crate) async fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go on\n").await.unwrap();
    }

    /// Waits for the end. Whether it was a success.
    pub(crate) async fn ends(mut self) -> bool {
        Clock::boot().timeout(LIMIT, self.child.wait()).await.expect("an end in time").unwrap().success()
    }
}

/// Waits until `is_so` says yes.
pub(crate) async fn until<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    let waiting = async {
        while !is_so().await {
            Clock::boot().sleep(LOOK).await;
        }
    };
    Clock::boot().timeout(LIMIT, waiting).await.expect("it comes to that in time");
}
