//! `lock run` on a terminal.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

use nix::pty::openpty;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use crate::common::{Fifo, unset, within};

/// A shell script in a session of its own on a terminal of its own; `$0` is the `lock` program.
struct Session {
    shell: Child,
    keyboard: File,
    screen: UnboundedReceiver<String>,
}

impl Session {
    fn start(script: &str) -> Self {
        let terminal = openpty(None, None).expect("a terminal");
        let (keyboard, screen) = (File::from(terminal.master.try_clone().unwrap()), File::from(terminal.master));
        let side = || Stdio::from(terminal.slave.try_clone().unwrap());
        let shell = unset(&mut Command::new("setsid"))
            .args(["--ctty", "--wait", "sh", "-c", script, env!("CARGO_BIN_EXE_lock")])
            .env("LOCK_URL", "memory://?ttl=6s")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .kill_on_drop(true)
            .spawn()
            .expect("setsid starts");
        let (lines, received) = unbounded_channel();
        // A terminal is not polled: a thread reads it until its other side is closed.
        std::thread::spawn(move || {
            for line in BufReader::new(screen).lines().map_while(Result::ok) {
                let _ = lines.send(line.trim_end().to_owned());
            }
        });
        Self { shell, keyboard, screen: received }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Waits until `line` is on the screen, where the echo of a key may stand before it.
    async fn expect(&mut self, line: &str) {
        loop {
            let next = within(self.screen.recv()).await.unwrap_or_else(|| panic!("the end instead of {line:?}"));
            if next.ends_with(line) {
                return;
            }
        }
    }

    async fn end(&mut self) -> Option<i32> {
        within(self.shell.wait()).await.expect("it can be waited for").code()
    }
}

#[tokio::test]
async fn the_command_reads_from_the_terminal_and_so_does_the_script_after_it() {
    let mut session =
        Session::start("$0 run a -- sh -c 'echo ask; read x; echo child $x; exit 3'; echo $?; read x; echo script $x");
    session.expect("ask").await;
    session.press("one\n");
    session.expect("child one").await;
    session.expect("3").await;
    session.press("two\n");
    session.expect("script two").await;
    assert_eq!(session.end().await, Some(0));
}

#[tokio::test]
async fn ctrl_c_reaches_the_command() {
    let mut session =
        Session::start("$0 run a -- sh -c 'trap \"exit 4\" INT; echo ready; while :; do sleep 1; done'; exit $?");
    session.expect("ready").await;
    session.press("\x03");
    assert_eq!(session.end().await, Some(4));
}

#[tokio::test]
async fn ctrl_c_that_ends_the_command_is_for_those_who_would_go_on_after_it_too() {
    for goes_on in ["elect a --again", "run a --at-least 1h"] {
        let mut session = Session::start(&format!("$0 {goes_on} -- sh -c 'echo ready; exec sleep 1000'; echo $?"));
        session.expect("ready").await;
        session.press("\x03");
        session.expect("130").await;
        assert_eq!(session.end().await, Some(0));
    }
}

#[tokio::test]
async fn a_candidate_ends_with_its_terminal() {
    let fifo = Fifo::new();
    let elect = "$0 elect a --again -- sh -c 'echo leads; exec sleep 1000'";
    let mut session = Session::start(&format!("exec 3>{}; {elect}; exit $?", fifo.path()));
    let mut written = fifo.open().await;
    session.expect("leads").await;
    // The shell leads the session: with it goes the terminal, whose signal is for the foreground alone.
    session.shell.start_kill().expect("it runs");
    // The candidate, too, has closed what it inherited.
    assert_eq!(within(written.next_line()).await.unwrap(), None);
}

#[tokio::test]
async fn ctrl_z_does_not_suspend_the_command() {
    let mut session = Session::start("$0 run a -- sh -c 'echo ready; read x; echo got $x'");
    session.expect("ready").await;
    session.press("\x1a");
    session.expect("lock: not suspended, since the lock or the place in its queue would be lost; going on").await;
    session.press("hello\n");
    session.expect("got hello").await;
    assert_eq!(session.end().await, Some(0));
}

#[tokio::test]
async fn what_stands_beside_it_in_a_pipeline_reads_from_the_terminal() {
    let script =
        "$0 run a -- sh -c 'echo ready; exec sleep 1000' | { read x; echo $x; read x </dev/tty; echo pager $x; }";
    let mut session = Session::start(script);
    session.expect("ready").await;
    session.press("one\n");
    session.expect("pager one").await;
    // It is for all of them, and is passed on to the command.
    session.press("\x03");
    session.end().await;
}

#[tokio::test]
async fn a_command_in_a_pipeline_gets_the_terminal_when_it_reads_from_it() {
    let script = "$0 run a -- sh -c 'echo ask; read x; echo child $x' | cat; read x; echo script $x";
    let mut session = Session::start(script);
    session.expect("ask").await;
    session.press("one\n");
    session.expect("child one").await;
    session.press("two\n");
    session.expect("script two").await;
    assert_eq!(session.end().await, Some(0));
}

#[tokio::test]
async fn what_was_stopped_since_the_command_had_the_terminal_goes_on_after_it() {
    let dir = TempDir::new().unwrap();
    let pager_pid = dir.path().join("pager");
    let pager_pid = pager_pid.display();
    let until_stopped = format!("until grep -q \"T (stopped)\" /proc/$(cat {pager_pid})/status; do sleep 0.1; done");
    // The shell makes the pipeline the foreground as each of its programs starts: nobody is to have the terminal by then.
    let until_started = format!("until test -s {pager_pid}; do sleep 0.1; done");
    let command = format!("{until_started}; echo ask >/dev/tty; read x; echo child $x; {until_stopped}");
    let pager = format!("echo $$ >{pager_pid}; read x; echo $x; read x </dev/tty; echo pager $x");
    // With the job control of a shell in which people type. It hears only of what stops and ends: the pager is to end first, else the
    // shell takes both for stopped when `lock run` ends, and goes.
    let script = format!("set -m; $0 run a --at-least 4s -- sh -c '{command}' | sh -c '{pager}'");
    let mut session = Session::start(&script);
    session.expect("ask").await;
    session.press("one\n");
    session.expect("child one").await;
    session.press("two\n");
    session.expect("pager two").await;
    session.end().await;
}

#[tokio::test]
async fn the_log_has_colours_on_a_terminal_unless_these_are_unwanted() {
    let mut session = Session::start("$0 -v run a -- true; NO_COLOR=1 $0 -v run a -- true");
    let mut granted = Vec::new();
    while let Some(line) = within(session.screen.recv()).await {
        granted.extend(line.contains("granted").then(|| line.starts_with('\u{1b}')));
    }
    assert_eq!(granted, [true, false]);
}

#[tokio::test]
async fn who_sits_there_is_told_that_the_lock_is_held_on_to() {
    let mut session = Session::start("$0 -q run a --at-least 1s -- true; $0 run a --at-least 150m -- true");
    // Nothing is on the screen before it: `-q` keeps the first one silent.
    let line = within(session.screen.recv()).await.expect("a line");
    assert!(line.starts_with("lock: holding lock \"a\" for another 2h "), "{line}");
    session.press("\x03");
    session.expect("before the end of --at-least").await;
}
