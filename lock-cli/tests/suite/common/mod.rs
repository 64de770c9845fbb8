//! What the tests of the program share: the program as a child process, and the services that it talks to.

pub(crate) mod services;

use std::{
    env, fs,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use lock::Clock;
use tempfile::TempDir;
use tokio::{
    fs::File,
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// How long something may take that must happen. Far above what it takes, so that a busy machine fails no test.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A command without what whoever runs the tests has set for `lock` and its log.
pub(crate) fn unset(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        let known = name.to_string_lossy();
        if known.starts_with("LOCK_") || ["NO_COLOR", "RUST_LOG"].contains(&&*known) {
            command.env_remove(name);
        }
    }
    command
}

/// The `lock` program with a URL, and without the environment of whoever runs the tests.
pub(crate) fn lock(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lock"));
    unset(&mut command).env("LOCK_URL", url).args(arguments).kill_on_drop(true);
    command
}

/// What a program that ran to its end left.
#[derive(Debug)]
pub(crate) struct Output {
    /// Its exit status.
    pub(crate) status: Option<i32>,
    /// What it wrote.
    pub(crate) stdout: String,
    /// What it complained about.
    pub(crate) stderr: String,
}

/// Runs the program to its end.
pub(crate) async fn output(url: &str, arguments: &[&str]) -> Output {
    finish(&mut lock(url, arguments)).await
}

/// Runs a command to its end.
pub(crate) async fn finish(command: &mut Command) -> Output {
    let output = within(command.stdin(Stdio::null()).output()).await.expect("the program runs");
    Output {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The result of `future`, which must come.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    Clock::boot().timeout(LIMIT, future).await.expect("it happens within the limit")
}

/// A `lock run` that goes on.
#[derive(Debug)]
pub(crate) struct Running {
    process: Child,
    /// `None` once it was closed.
    lines: Option<Lines<BufReader<ChildStdout>>>,
    stdin: Option<ChildStdin>,
}

impl Running {
    /// Starts the program. Its standard input stays open until [`Running::close_stdin`].
    pub(crate) fn start(url: &str, arguments: &[&str]) -> Self {
        Self::spawn(&mut lock(url, arguments))
    }

    /// Starts a command.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let lines = Some(BufReader::new(process.stdout.take().expect("a pipe")).lines());
        let stdin = process.stdin.take();
        Self { process, lines, stdin }
    }

    /// The next line that it or its command writes; `None` when all of them have ended.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.line_like("any").await
    }

    async fn line_like(&mut self, wanted: &str) -> Option<String> {
        let lines = self.lines.as_mut().expect("it is not closed");
        match Clock::boot().timeout(LIMIT, lines.next_line()).await {
            Some(line) => line.expect("the pipe is read"),
            None => {
                let said = self.stderr_so_far().await;
                panic!("no line within the limit, {wanted:?} was waited for; on standard error so far: {said}")
            }
        }
    }

    /// Waits for that line, which must be the next.
    pub(crate) async fn expect(&mut self, line: &str) {
        let next = self.line_like(line).await;
        if next.as_deref() != Some(line) {
            let _ = self.process.start_kill();
            panic!("{next:?} instead of {line:?}; on standard error: {}", self.stderr().await);
        }
    }

    /// Ends the command's input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Hangs up on its standard error.
    pub(crate) fn close_stderr(&mut self) {
        self.process.stderr = None;
    }

    /// Hangs up on its standard output.
    pub(crate) fn close_stdout(&mut self) {
        self.lines = None;
    }

    /// The process id of `lock run`.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    /// Sends it a signal by its name, as kill(1) takes it.
    pub(crate) fn signal(&self, signal: &str) {
        kill(signal, self.pid());
    }

    /// Waits until it has ended.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        within(self.process.wait()).await.expect("it can be waited for")
    }

    /// Waits until everybody has ended who holds the other end of its standard output: the program, its command, and
    /// whatever the command started.
    pub(crate) async fn all_end(&mut self) {
        while self.line().await.is_some() {}
    }

    /// Waits until it catches SIGTERM, as it does from its first step on.
    pub(crate) async fn catches_signals(&self) {
        let status = format!("/proc/{}/status", self.pid());
        let catches = || {
            let status = fs::read_to_string(&status).expect("it is alive");
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a line");
            u64::from_str_radix(caught.trim(), 16).expect("a mask") & (1 << 14) != 0
        };
        within(async {
            while !catches() {
                Clock::boot().sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// The next line of its standard error.
    pub(crate) async fn stderr_line(&mut self) -> String {
        let stderr = self.process.stderr.as_mut().expect("it is not closed");
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\n") && within(stderr.read(&mut byte)).await.expect("the pipe is read") > 0 {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// What it has written to standard error.
    async fn stderr_so_far(&mut self) -> String {
        let mut text = Vec::new();
        if let Some(stderr) = &mut self.process.stderr {
            // Others may keep it open: what is there until then is kept.
            let _ = Clock::boot().timeout(Duration::from_secs(1), stderr.read_to_end(&mut text)).await;
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// What it wrote to standard error until its end.
    pub(crate) async fn stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            within(stderr.read_to_string(&mut text)).await.expect("the pipe is read");
        }
        text
    }
}

/// Sends a signal with kill(1).
pub(crate) fn kill(signal: &str, pid: u32) {
    let done = std::process::Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
    assert!(done.is_ok_and(|status| status.success()), "kill -{signal} {pid}");
}

/// The process group of `pid`, from the kernel.
pub(crate) fn group_of(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is alive");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    fields.split_whitespace().nth(2).expect("a group").to_owned()
}

/// A named pipe, for a command that is to be heard apart from `lock run`.
#[derive(Debug)]
pub(crate) struct Fifo {
    dir: TempDir,
}

impl Fifo {
    /// Makes one.
    pub(crate) fn new() -> Self {
        let fifo = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        let made = std::process::Command::new("mkfifo").arg(fifo.path()).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        fifo
    }

    /// Where it is.
    pub(crate) fn path(&self) -> String {
        self.dir.path().join("fifo").display().to_string()
    }

    /// Reads from it once somebody writes; the lines end when everybody who could write has ended.
    pub(crate) async fn open(&self) -> Lines<BufReader<File>> {
        let file = within(File::open(self.path())).await.expect("it can be read");
        BufReader::new(file).lines()
    }
}
