//! `lock run` and its command: exit statuses, signals, environment, terminal. The service does not matter here, so it is
//! the memory backend, in the program itself.

use tokio::process::Command;

use crate::common::{Fifo, Running, finish, group_of, lock, output, unset, within};

const MEMORY: &str = "memory://run?ttl=6s";

async fn run(script: &str) -> crate::common::Output {
    output(MEMORY, &["run", "a", "--", "sh", "-c", script]).await
}

#[tokio::test]
async fn the_exit_status_is_that_of_the_command() {
    for (script, status) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        assert_eq!(run(script).await.status, Some(status), "{script}");
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_told_as_shells_do() {
    for (program, status) in
        [("/no/such/program", 127), ("no-such-program-anywhere", 127), ("/etc/passwd", 126), ("/", 126)]
    {
        let failed = output(MEMORY, &["run", "a", "--", program]).await;
        assert_eq!(failed.status, Some(status), "{failed:?}");
        assert!(failed.stderr.contains(program) && failed.stderr.lines().count() == 1, "{failed:?}");
    }
}

#[tokio::test]
async fn wrong_usage_is_64_and_help_is_0() {
    for arguments in [
        &[][..],
        &["run"],
        &["run", "a"],
        &["run", "a", "true"],
        &["run", "a", "--wait", "soon", "--", "true"],
        &["run", "a", "--wait", "1s", "--no-wait", "--", "true"],
        &["run", "a", "--no-such-option", "--", "true"],
        &["run", "a", "--shared", "--permits", "2", "--", "true"],
        &["run", "a", "--permits", "0", "--", "true"],
        &["elect", "a"],
        &["elect", "a", "--json", "--", "true"],
        &["elect", "a", "--observe", "--", "true"],
        &["elect", "a", "--observe", "--again"],
        &["watch"],
        &["run", "", "--", "true"],
        &["no-such-command"],
        &["compare", "--out", "x", "--url", "memory://"],
        &["compare", "--out", "x", "--scale", "NaN"],
        &["compare", "--out", "x", "--on", "nothing"],
        &["demo", "--nodes", "0"],
    ] {
        let wrong = output(MEMORY, arguments).await;
        assert_eq!((wrong.status, wrong.stdout.as_str()), (Some(64), ""), "{arguments:?}: {wrong:?}");
        assert!(!wrong.stderr.is_empty());
    }
    for arguments in [&["--help"][..], &["--version"], &["run", "--help"], &["elect", "--help"]] {
        assert_eq!(output(MEMORY, arguments).await.status, Some(0), "{arguments:?}");
    }
}

#[tokio::test]
async fn wrong_configuration_is_78_and_is_named() {
    for (url, named) in [
        ("nonsense", "nonsense"),
        ("nosuch://h", "nosuch"),
        ("redis://h:99999", "99999"),
        ("memory://?tll=3s", "tll"),
        ("memory://?ttl=never", "never"),
        ("memory://?era=-1", "era"),
    ] {
        let wrong = output(url, &["run", "a", "--", "echo", "ran"]).await;
        assert_eq!((wrong.status, wrong.stdout.as_str()), (Some(78), ""), "{url}: {wrong:?}");
        assert!(wrong.stderr.contains(named) && wrong.stderr.lines().count() == 1, "{url}: {wrong:?}");
    }
}

#[tokio::test]
async fn without_a_service_it_is_this_machine_which_is_said_unless_that_is_asked_for() {
    let state = tempfile::tempdir().unwrap();
    for arguments in [&["run", "a", "--", "sh", "-c", "echo $LOCK_URL"][..], &["status", "a"]] {
        let ran = finish(lock(MEMORY, arguments).env_remove("LOCK_URL").env("XDG_STATE_HOME", state.path())).await;
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stdout == "local://\n" || ran.stdout.ends_with("is free\n"), "{ran:?}");
        for said in ["LOCK_URL", "using local://", "--quiet"] {
            assert!(ran.stderr.contains(said) && ran.stderr.lines().count() == 1, "{ran:?}");
        }
        let quiet = [&["--quiet"], arguments].concat();
        let mut quiet = lock(MEMORY, &quiet);
        let mut meant = lock("local://", arguments);
        for silent in [quiet.env_remove("LOCK_URL"), &mut meant] {
            let ran = finish(silent.env("XDG_STATE_HOME", state.path())).await;
            assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        }
    }
    assert!(state.path().join("lock/a.lock").is_dir());
}

#[tokio::test]
async fn a_job_of_a_daemon_and_a_session_of_the_same_user_find_the_same_local_locks() {
    let [home, session] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let local = |arguments: &[&str]| {
        let mut command = lock("local://", arguments);
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR").env("HOME", home.path());
        command
    };
    let mut by_hand = local(&["run", "a", "--", "sh", "-c", "echo held; cat"]);
    let mut holder = Running::spawn(by_hand.env("XDG_RUNTIME_DIR", session.path()).env("TMPDIR", session.path()));
    holder.expect("held").await;
    let by_daemon = finish(&mut local(&["run", "a", "--no-wait", "--", "echo", "ran"])).await;
    assert_eq!((by_daemon.status, by_daemon.stdout.as_str()), (Some(75), ""), "{by_daemon:?}");
    // In no directory that everybody may make first.
    assert!(home.path().join(".local/state/lock/a.lock").is_dir());
    holder.close_stdin();
    assert_eq!(holder.end().await.code(), Some(0));

    let mut nowhere = local(&["status", "a"]);
    let refused = finish(nowhere.env("XDG_STATE_HOME", "/proc/nowhere")).await;
    assert_eq!(refused.status, Some(78), "{refused:?}");
    assert!(
        refused.stderr.contains("/proc/nowhere/lock") && refused.stderr.contains("set XDG_STATE_HOME"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_command_line_comes_before_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lock.toml");
    std::fs::write(&file, "[lock]\nbackend = 'memory'\nera = 7\n").unwrap();
    let file = file.to_str().unwrap();
    let script = ["--", "sh", "-c", "echo $LOCK_TOKEN"];
    for (choice, era) in [(["--url", "memory://?era=6"], "0000000006-"), (["--config", file], "0000000007-")] {
        let arguments: Vec<_> = choice.into_iter().chain(["run", "a"]).chain(script).collect();
        let ran = output("memory://?era=5", &arguments).await;
        assert!(ran.stdout.starts_with(era), "{ran:?}");
    }
    let ran = finish(lock("", &["run", "a", "--", "sh", "-c", "echo $LOCK_TOKEN"]).env("LOCK_CONFIG", file)).await;
    assert!(ran.stdout.starts_with("0000000007-"), "{ran:?}");
}

#[tokio::test]
async fn the_command_knows_its_lock() {
    let ran = run("echo $LOCK_NAME; echo $LOCK_TOKEN; echo $LOCK_TOKEN_INT; echo $LOCK_URL").await;
    assert_eq!(ran.stdout, "a\n0000000000-00000000000000000001\n1\nmemory://run?ttl=6s\n", "{ran:?}");
}

/// The fence of docs/fencing.md for a file, in the system's own shell.
#[tokio::test]
async fn a_shell_compares_the_token_as_an_integer_era_included() {
    let page = include_str!("../../../docs/fencing.md");
    let script = page.rsplit("```sh\n").next().and_then(|rest| rest.split_once("```")).expect("an example").0;
    let dir = tempfile::tempdir().unwrap();
    let (new, report) = (dir.path().join("report.new"), dir.path().join("report"));
    let writes = [
        ("first", 0, 0, "first"),
        ("second", 921, 0, "second"),
        ("late", 920, 1, "second"),
        ("again", 921, 0, "again"),
    ];
    for (line, era, status, after) in writes {
        std::fs::write(&new, line).unwrap();
        let url = format!("memory://?era={era}");
        let ran = finish(lock(&url, &["run", "a", "--", "sh", "-c", script]).current_dir(&dir)).await;
        assert_eq!((ran.status, std::fs::read_to_string(&report).unwrap().as_str()), (Some(status), after), "{ran:?}");
        assert_eq!(ran.stderr.contains("refused: 9210000000000000001 has written"), status == 1, "{ran:?}");
    }
    let ran = finish(lock("memory://?era=922", &["run", "a", "--", "sh", "-c", script]).current_dir(&dir)).await;
    assert_eq!((ran.status, std::fs::read_to_string(&report).unwrap().as_str()), (Some(1), "again"), "{ran:?}");
    // A token without an integer form: the variable is not that of somebody who has started us.
    let script = ["run", "a", "--", "sh", "-c", "echo ${LOCK_TOKEN_INT-none} $LOCK_TOKEN"];
    let ran = finish(lock("memory://?era=922", &script).env("LOCK_TOKEN_INT", "7")).await;
    assert_eq!(ran.stdout, "none 0000000922-00000000000000000001\n", "{ran:?}");
}

#[tokio::test]
async fn the_command_has_a_process_group_of_its_own() {
    let mut running =
        Running::start(MEMORY, &["run", "a", "--", "sh", "-c", "sh -c 'echo $$ $PPID; cat >/dev/null'; true"]);
    let pids = running.line().await.unwrap();
    let (grandchild, child) = pids.split_once(' ').unwrap();
    assert_eq!(group_of(grandchild), group_of(child));
    assert_ne!(group_of(child), group_of(&running.pid().to_string()));
    running.close_stdin();
    assert_eq!(running.end().await.code(), Some(0));
}

#[tokio::test]
async fn signals_are_passed_on() {
    // The last sleep may outlive the shell: one that forks just when a signal comes swallows it.
    let script =
        "for s in HUP INT QUIT USR1 USR2 ALRM WINCH CONT; do trap \"echo $s\" $s; done; trap 'echo TERM; exit 7' TERM
        echo ready; while :; do sleep 1 & wait $!; done";
    let mut running = Running::start(MEMORY, &["run", "a", "--", "sh", "-c", script]);
    running.expect("ready").await;
    for signal in ["HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "WINCH", "CONT", "TERM"] {
        running.signal(signal);
        running.expect(signal).await;
    }
    assert_eq!(running.end().await.code(), Some(7));
}

#[tokio::test]
async fn signals_reach_what_the_command_started() {
    let script =
        "trap 'wait; exit 7' TERM; (trap 'echo inner; exit' TERM; echo ready; while :; do sleep 1; done) & wait";
    let mut running = Running::start(MEMORY, &["run", "a", "--", "sh", "-c", script]);
    running.expect("ready").await;
    running.signal("TERM");
    running.expect("inner").await;
    running.all_end().await;
    assert_eq!(running.end().await.code(), Some(7));
}

#[tokio::test]
async fn what_was_ignored_before_stays_ignored() {
    let mut nohup = Command::new("sh");
    nohup.arg("-c").arg("trap '' HUP; exec \"$0\" run a -- sh -c 'kill -HUP $$ $PPID; echo alive'");
    nohup.arg(env!("CARGO_BIN_EXE_lock"));
    let ran = finish(unset(&mut nohup).env("LOCK_URL", MEMORY)).await;
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), "alive\n"), "{ran:?}");
}

#[tokio::test]
async fn what_the_command_leaves_in_the_background_goes_on_when_it_ends_by_itself() {
    let script = "exec 3<&0; (cat <&3; echo still here) & exit 4";
    let mut running = Running::start(MEMORY, &["run", "a", "--", "sh", "-c", script]);
    assert_eq!(running.end().await.code(), Some(4));
    running.close_stdin();
    running.expect("still here").await;
}

#[tokio::test]
async fn a_killed_lock_run_takes_its_commands_whole_group_with_it() {
    let script = "sh -c 'trap \"\" TERM; echo deep; while :; do sleep 1; done' & wait";
    let mut running = Running::start(MEMORY, &["run", "a", "--kill-after", "200ms", "--", "sh", "-c", script]);
    running.expect("deep").await;
    running.signal("KILL");
    running.all_end().await;
}

#[tokio::test]
async fn nobody_needs_to_read_what_it_says() {
    let mut command = lock(MEMORY, &["run", "a", "--", "sh", "-c", "echo $$; kill -TSTP $$; exit 6"]);
    let mut running = Running::spawn(&mut command);
    running.close_stderr();
    assert!(running.line().await.is_some());
    assert_eq!(running.end().await.code(), Some(6));
}

#[tokio::test]
async fn it_does_not_follow_a_terminal_that_would_stop_it() {
    let script = "echo ready; cat >/dev/null; exit 6";
    // In a group of its own: one that nobody could continue is not stopped by these signals anyway.
    let mut running = Running::spawn(lock(MEMORY, &["run", "a", "--", "sh", "-c", script]).process_group(0));
    running.expect("ready").await;
    ["TTIN", "TTOU", "TSTP"].into_iter().for_each(|signal| running.signal(signal));
    running.close_stdin();
    assert_eq!(running.end().await.code(), Some(6));
}

#[tokio::test]
async fn the_command_blocks_no_signal_that_others_do_not() {
    let blocked = ["grep", "SigBlk", "/proc/self/status"];
    let [program, arguments @ ..] = blocked;
    let alone = std::process::Command::new(program).args(arguments).output().expect("it runs");
    let ran = output(MEMORY, &[&["run", "a", "--"], &blocked[..]].concat()).await;
    assert_eq!(ran.stdout.as_bytes(), alone.stdout);
}

#[tokio::test]
async fn a_stopped_lock_run_cannot_leave_its_command_running_without_the_lock() {
    let fifo = Fifo::new();
    let script = format!("exec >{}; echo up; sleep 1000 & wait", fifo.path());
    let mut running = Running::start(MEMORY, &["run", "a", "--kill-after", "200ms", "--", "sh", "-c", &script]);
    let mut written = fifo.open().await;
    assert_eq!(within(written.next_line()).await.unwrap().as_deref(), Some("up"));
    running.signal("STOP");
    // Everybody who could write to it has ended, while `lock run` itself stands still.
    assert_eq!(within(written.next_line()).await.unwrap(), None);
    running.signal("CONT");
    assert_eq!(running.end().await.code(), Some(76));
}

#[tokio::test]
async fn a_command_that_was_stopped_with_sigstop_is_ended_with_the_lock() {
    let mut running = Running::start(MEMORY, &["run", "a", "--", "sh", "-c", "echo $$; kill -STOP $$; echo went on"]);
    let pid: u32 = running.line().await.unwrap().parse().unwrap();
    assert!(!group_of(&pid.to_string()).is_empty());
    running.signal("KILL");
    running.all_end().await;
}
