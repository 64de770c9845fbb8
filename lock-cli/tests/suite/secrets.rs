//! Nothing that the program, its log, its errors or its children show contains a password.

use std::fs;

use lock_lab::servers::Redis;
use tokio::process::Command;

use crate::common::{Running, finish};

/// The password of one test, whose like stands nowhere else.
const SECRET: &str = "correct-horse-battery";
/// That of the other, which looks at all processes, those of the first among them.
const OTHER_SECRET: &str = "staple-of-another-kind";

/// All that is said of the processes of this machine that anybody may read, and what this user may read besides: command lines and
/// environments, but for those of the processes that were given the password.
fn processes(given: &[u32]) -> String {
    let mut all = String::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let command_line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        all += &String::from_utf8_lossy(&command_line);
        if !given.contains(&pid) {
            all += &String::from_utf8_lossy(&fs::read(entry.path().join("environ")).unwrap_or_default());
        }
        all.push('\n');
    }
    all
}

async fn protected(secret: &str) -> Redis {
    let server = Redis::start().await.unwrap();
    let rule = format!(">{secret}");
    () = server.ask("ACL SETUSER", &["orders", "on", &rule, "~*", "&*", "+@all"]).await.unwrap();
    server
}

fn lock(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lock"));
    for variable in ["LOCK_URL", "LOCK_CONFIG", "LOCK_PASSWORD"] {
        command.env_remove(variable);
    }
    command.args(arguments).kill_on_drop(true);
    command
}

/// The ways to give a password, and the same with another one that the server refuses.
fn ways(port: u16, dir: &std::path::Path, secret: &str) -> Vec<Vec<(&'static str, String)>> {
    let [password, with, naming] = ["password", "with.toml", "naming.toml"].map(|name| dir.join(name));
    let host = format!("127.0.0.1:{port}");
    fs::write(&password, format!("{secret}\n")).unwrap();
    fs::write(&with, format!("[lock]\nurl = 'redis://{host}'\nusername = 'orders'\npassword = '{secret}'\n")).unwrap();
    let named = format!("[lock]\nurl = 'redis://orders@{host}'\npassword_file = '{}'\n", password.display());
    fs::write(&naming, named).unwrap();
    vec![
        vec![("LOCK_URL", format!("redis://orders:{secret}@{host}"))],
        vec![("LOCK_URL", format!("redis://orders@{host}")), ("LOCK_PASSWORD", secret.to_owned())],
        vec![("LOCK_URL", format!("redis://orders@{host}?password_file={}", password.display()))],
        vec![("LOCK_CONFIG", with.display().to_string())],
        vec![("LOCK_CONFIG", naming.display().to_string())],
    ]
}

const COMMANDS: [&[&str]; 8] = [
    &["run", "a", "--", "sh", "-c", "env; cat /proc/$$/cmdline"],
    &["run", "a", "--", "/no/such/program"],
    &["run", "a", "--ttl", "1ms", "--", "true"],
    &["elect", "a", "--", "env"],
    &["status", "a"],
    &["status", "a", "--json"],
    &["redlock", "init"],
    &["redlock", "replace", "h1", "h2"],
];

#[tokio::test]
async fn no_password_is_shown_whatever_is_done_and_however_it_is_given() {
    let (server, dir) = (protected(SECRET).await, tempfile::tempdir().unwrap());
    for secret in [SECRET.to_owned(), format!("{SECRET}-that-is-refused")] {
        for way in ways(server.port(), dir.path(), &secret) {
            for command in COMMANDS {
                let mut asked = lock(&[&["-vv"], command].concat());
                let ran = finish(asked.envs(way.iter().map(|(name, value)| (name, value)))).await;
                let shown = format!("{}{}", ran.stdout, ran.stderr);
                assert!(!shown.contains(SECRET), "{way:?} {command:?}: {shown}");
                assert!(!shown.is_empty(), "{way:?} {command:?}: nothing was done");
            }
        }
    }
}

#[tokio::test]
async fn no_process_that_is_started_gets_the_password() {
    let (server, dir) = (protected(OTHER_SECRET).await, tempfile::tempdir().unwrap());
    for way in ways(server.port(), dir.path(), OTHER_SECRET) {
        let mut run = lock(&["run", "a", "--", "sh", "-c", "echo running; read line; true"]);
        let mut run = Running::spawn(run.envs(way.iter().map(|(name, value)| (name, value))));
        run.expect("running").await;
        // The command, the shell in it, and the guardian beside it run now.
        let shown = processes(&[run.pid()]);
        assert!(shown.contains("guardian") && !shown.contains(OTHER_SECRET), "{way:?}");
        run.close_stdin();
        assert!(run.end().await.success());
    }
}
