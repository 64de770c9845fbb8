//! A table, in PostgreSQL.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use lock::{FencingToken, fence::sql::postgresql};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// How long the server may take to start.
const LIMIT: Duration = Duration::from_secs(60);

/// A server on a socket in a directory of its own, stopped when the value is dropped.
struct PostgreSql {
    dir: TempDir,
    server: Child,
}

impl PostgreSql {
    async fn start() -> Self {
        let programs = programs();
        let dir = tempfile::Builder::new().prefix("lock-postgresql-").tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        if geteuid().is_root() {
            // The server refuses to be root, and the package has made a user for it.
            let ids = fs::read_to_string("/etc/passwd").unwrap();
            let user = ids.lines().find(|line| line.starts_with("postgres:")).expect("there is a user postgres");
            let id = |field| user.split(':').nth(field).unwrap().parse().unwrap();
            for path in [dir.path(), &data] {
                chown(path, Some(id(2)), Some(id(3))).unwrap();
            }
        }
        let made = as_server(&programs.join("initdb"))
            .args(["--auth=trust", "--username=postgres", "--no-sync", "--pgdata"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let server = as_server(&programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"])
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Self { dir, server };
        let ready = async {
            while !started.client().args(["-c", "SELECT 1"]).output().unwrap().status.success() {
                lock::Clock::boot().sleep(Duration::from_millis(50)).await;
            }
        };
        lock::Clock::boot().timeout(LIMIT, ready).await.expect("the server starts");
        started
    }

    fn client(&self) -> Command {
        let mut client = Command::new("psql");
        client.args(["--no-psqlrc", "-At", "-U", "postgres", "-d", "postgres", "-h"]).arg(self.dir.path());
        client
    }

    /// What the client writes about these statements, a line for each row and each statement's outcome.
    fn run(&self, statements: &str) -> Vec<String> {
        let mut client = self.client();
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        client.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
        let output = client.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for PostgreSql {
    fn drop(&mut self) {
        // Its fast shutdown, which leaves nothing in the system's shared memory.
        let _ = Pid::from_raw(self.server.id().cast_signed()).map(|pid| kill_process(pid, Signal::INT));
        let _ = self.server.wait();
    }
}

/// Where Debian keeps the programs of the newest version that is installed.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("the Debian package postgresql is installed");
    let newest = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()).max();
    Path::new("/usr/lib/postgresql").join(newest.expect("there is a version").to_string()).join("bin")
}

/// A command that is ended with this test, and is not root.
fn as_server(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]);
    if geteuid().is_root() {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
    }
    command.arg("--").arg(program).current_dir("/");
    command
}

/// The statements that have a token admitted, and the outcomes that are expected of them.
#[derive(Default)]
struct Script {
    statements: String,
    expected: Vec<String>,
}

impl Script {
    fn new(kind: &str, table: &str, admit: &str, highest: &str) -> Self {
        let statements =
            format!("{table};\nPREPARE admit (text, {kind}) AS {admit};\nPREPARE highest (text) AS {highest};\n");
        Self { statements, expected: ["CREATE TABLE", "PREPARE", "PREPARE"].map(str::to_owned).to_vec() }
    }

    fn add(&mut self, statement: &str, expected: &str) {
        self.statements += &format!("{statement};\n");
        self.expected.push(expected.to_owned());
    }

    fn compare(&mut self, table: &str, tokens: &[FencingToken], form: fn(FencingToken) -> String) {
        for seen in tokens {
            for given in tokens {
                self.add(&format!("TRUNCATE {table}"), "TRUNCATE TABLE");
                self.add(&format!("EXECUTE admit('report', '{}')", form(*seen)), "INSERT 0 1");
                let admitted = u8::from(given >= seen);
                self.add(&format!("EXECUTE admit('report', '{}')", form(*given)), &format!("INSERT 0 {admitted}"));
                self.add("EXECUTE highest('report')", &form(*given.max(seen)));
            }
        }
    }
}

/// The tokens of those eras with each of those numbers.
fn tokens(eras: [u32; 4], last: u64) -> Vec<FencingToken> {
    let numbers = [0, 9, 10, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, last];
    eras.map(|era| numbers.map(|number| FencingToken { era, number })).concat()
}

#[tokio::test]
async fn the_database_compares_both_forms_as_this_program_compares_tokens() {
    let server = PostgreSql::start().await;

    let mut text = Script::new("text", postgresql::TABLE, postgresql::ADMIT, postgresql::HIGHEST);
    text.compare("lock_fence", &tokens([0, 9, 10, u32::MAX], u64::MAX), |token| token.to_string());
    assert_eq!(server.run(&text.statements), text.expected);

    use postgresql::integer;
    let mut integers = Script::new("bigint", integer::TABLE, integer::ADMIT, integer::HIGHEST);
    let fitting = tokens([0, 9, 10, 921], 9_999_999_999_999_999);
    integers.compare("lock_fence_integer", &fitting, |token| token.to_i64().unwrap().to_string());
    assert_eq!(server.run(&integers.statements), integers.expected);

    let refused = server.run("INSERT INTO lock_fence_integer (resource, token) VALUES ('report', -1);");
    assert!(refused.iter().any(|line| line.contains("violates check constraint")), "{refused:?}");
}

/// A transaction that was admitted keeps the next holder's waiting until it ends; one that was rolled back leaves no token.
#[tokio::test]
async fn check_and_write_are_one_step() {
    use postgresql::integer;
    let server = PostgreSql::start().await;
    let admit =
        |token: i64| format!("PREPARE admit (text, bigint) AS {}; EXECUTE admit('report', {token});\n", integer::ADMIT);
    server.run(&format!("{}; CREATE TABLE report (line text);", integer::TABLE));
    server.run(&format!("{}INSERT INTO report VALUES ('first');", admit(33)));
    let rolled_back = server.run(&format!("BEGIN;\n{}INSERT INTO report VALUES ('no'); ROLLBACK;", admit(35)));
    assert_eq!(rolled_back.last().unwrap(), "ROLLBACK", "{rolled_back:?}");

    // The old holder's transaction is stopped between its check and its commit.
    let mut old = server.client().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut old_says = old.stdin.take().unwrap();
    old_says.write_all(format!("BEGIN;\n{}", admit(33)).as_bytes()).unwrap();
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted;";
    let admitted = "SELECT count(*) FROM pg_locks WHERE relation = 'lock_fence_integer'::regclass;";
    until_some(&server, admitted).await;
    let mut new = server.client().stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let step = format!("BEGIN;\n{}INSERT INTO report VALUES ('new'); COMMIT;\n", admit(34));
    new.stdin.take().unwrap().write_all(step.as_bytes()).unwrap();
    until_some(&server, waits).await;
    old_says.write_all(b"INSERT INTO report VALUES ('old'); COMMIT;\n").unwrap();
    drop(old_says);
    assert!(old.wait().unwrap().success() && new.wait().unwrap().success());
    assert_eq!(server.run("SELECT line FROM report;"), ["first", "old", "new"]);
    let late = server.run(&admit(33));
    assert_eq!(late, ["PREPARE", "INSERT 0 0"]);
}

/// Asks until the count that the query gives is not zero.
async fn until_some(server: &PostgreSql, query: &str) {
    let asked = async {
        while server.run(query) == ["0"] {
            lock::Clock::boot().sleep(Duration::from_millis(20)).await;
        }
    };
    lock::Clock::boot().timeout(LIMIT, asked).await.expect("the database gets there");
}
