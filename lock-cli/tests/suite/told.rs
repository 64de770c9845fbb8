//! What a command is told of its lock service, and a terminal of what comes from servers and other users.

use std::{fs, os::unix::fs::PermissionsExt as _};

use lock::{Config, Locks};
use lock_lab::servers::{Redis, connect_to_redis};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::common::{Output, Running, finish, lock, output};

/// A server that asks for a password, and a URL with it.
async fn server_with_password() -> (Redis, String) {
    let server = Redis::start().await.expect("Redis starts");
    let mut connection = server.connection().await.expect("Redis answers");
    let set: String = redis::cmd("CONFIG")
        .arg(&["SET", "requirepass", "geheim"])
        .query_async(&mut connection)
        .await
        .expect("CONFIG SET");
    assert_eq!(set, "OK");
    let url = format!("redis://:geheim@127.0.0.1:{}", server.port());
    (server, url)
}

fn without_secret(ran: &Output) {
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(!ran.stdout.contains("geheim") && ran.stdout.contains("LOCK_NAME=a\n"), "{ran:?}");
}

#[tokio::test]
async fn no_password_of_a_url_reaches_the_command() {
    let (server, url) = server_with_password().await;
    for arguments in [&["run", "a", "--", "env"][..], &["elect", "a", "--", "env"]] {
        let ran = output(&url, arguments).await;
        without_secret(&ran);
        assert!(ran.stdout.contains(&format!("LOCK_URL=redis://127.0.0.1:{}\n", server.port())), "{ran:?}");
    }
}

#[tokio::test]
async fn no_password_of_a_file_reaches_the_command_but_the_name_of_the_file_by_which_it_connects() {
    let (server, _) = server_with_password().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lock.toml");
    fs::write(&file, format!("[lock]\nurl = 'redis://127.0.0.1:{}'\npassword = 'geheim'\n", server.port())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let script = "env; cd /; exec \"$0\" status a";
    let command = ["--", "sh", "-c", script, env!("CARGO_BIN_EXE_lock")];

    let mut by_environment = lock("", &[&["run", "a"], &command[..]].concat());
    by_environment.env("LOCK_CONFIG", &file);
    let mut by_option = lock("memory://", &[&["--config", "lock.toml", "run", "a"], &command[..]].concat());
    by_option.current_dir(directory.path());
    for asking in [&mut by_environment, &mut by_option] {
        let ran = finish(asking).await;
        without_secret(&ran);
        assert!(ran.stdout.contains(&format!("LOCK_CONFIG={}\n", file.display())), "{ran:?}");
        assert!(!ran.stdout.contains("LOCK_URL=") && ran.stdout.contains("\"a\" is held"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_password_that_was_changed_is_the_reason_that_is_said() {
    let (_server, url) = server_with_password().await;
    // Its refusal is waited for, if it comes late.
    let patient = format!("{url}?ttl=6s&connect_timeout=20s&response_timeout=20s");
    let mut run = Running::start(&patient, &["run", "a", "--", "sh", "-c", "echo runs; sleep 1000"]);
    run.expect("runs").await;
    let mut operator = connect_to_redis(&url).await.expect("Redis answers");
    for command in ["CONFIG SET requirepass anders", "CLIENT KILL TYPE normal"] {
        let (command, arguments) = command.split_once(' ').unwrap();
        let arguments: Vec<_> = arguments.split(' ').collect();
        let _: redis::Value = redis::cmd(command).arg(arguments).query_async(&mut operator).await.expect(command);
    }
    assert_eq!(run.end().await.code(), Some(76));
    let said = run.stderr().await;
    assert!(said.contains("lock \"a\"") && said.contains("authentication failed"), "{said}");
}

/// Clears the screen, once more with a control character of C1, and turns around what follows.
const PLAYFUL: &str = "\u{1b}[2J\u{9b}2J\u{202e}";

fn is_plain(shown: &str) -> bool {
    !shown.chars().any(|c| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c))
}

#[tokio::test]
async fn nothing_that_another_user_wrote_plays_with_the_terminal() {
    let server = Redis::start().await.expect("Redis starts");
    let url = server.url();
    let playing = Config::from_url(&url).unwrap().with_payload(format!("who={PLAYFUL}!").into_bytes());
    let locks: Locks = playing.connect().await.unwrap();
    let leader = locks.election(PLAYFUL).campaign(format!("{PLAYFUL}?").into_bytes()).await.unwrap();
    let guard = locks.mutex("a").lock().await.unwrap();

    let text = r"\u{1b}[2J\u{9b}2J\u{202e}";
    let json = r"\u001b[2J\u009b2J\u202e";
    for (name, payload) in [("a", "who="), (PLAYFUL, "")] {
        for (arguments, escaped) in [(&["status", name][..], text), (&["status", name, "--json"], json)] {
            let shown = output(&url, arguments).await;
            assert_eq!(shown.status, Some(0), "{shown:?}");
            assert!(is_plain(&shown.stdout) && shown.stdout.contains(&format!("{payload}{escaped}")), "{shown:?}");
        }
    }
    for (arguments, escaped) in [
        (&["watch", "a"][..], text),
        (&["watch", "a", "--json"], json),
        (&["elect", PLAYFUL, "--observe"], text),
        (&["elect", PLAYFUL, "--observe", "--json"], json),
    ] {
        let mut watching = Running::start(&url, arguments);
        let line = watching.line().await.unwrap();
        assert!(is_plain(&line) && line.contains(escaped), "{arguments:?}: {line}");
    }
    guard.release().await.unwrap();
    leader.resign().await.unwrap();
}

#[tokio::test]
async fn no_error_of_a_server_plays_with_the_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while connection.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let error = format!("-ERR {PLAYFUL} no\r\n").repeat(4);
                    let _ = connection.write_all(error.as_bytes()).await;
                }
            });
        }
    });
    for arguments in [&["status", "a"][..], &["-vv", "status", "a"]] {
        let refused = output(&url, arguments).await;
        assert!(!refused.stderr.is_empty() && is_plain(&refused.stderr), "{refused:?}");
        assert!(refused.stderr.contains(r"\u{1b}[2J"), "{refused:?}");
    }
}
