//! Wrong command lines, URLs, files and certificates: each with the exit status and what is said of it.

use std::fs;

use lock_lab::servers::{Certificates, ClientCertificate, Redis, RedisOptions, ServerCertificate};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    process::Command,
};

use crate::common::finish;

const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const CONFIG: i32 = 78;

/// Something that is wrong.
struct Wrong {
    /// The words of the command line. In these and in all else, `{...}` stands for what [`Surroundings`] has of that name.
    line: &'static str,
    status: i32,
    /// What standard error has to say, in this order.
    says: &'static [&'static str],
    /// A variable of the environment.
    variable: Option<(&'static str, &'static str)>,
    /// What the file `{file}` holds.
    file: Option<&'static str>,
}

const fn wrong(line: &'static str, status: i32, says: &'static [&'static str]) -> Wrong {
    Wrong { line, status, says, variable: None, file: None }
}

impl Wrong {
    const fn with_variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variable = Some((name, value));
        self
    }

    const fn with_file(mut self, text: &'static str) -> Self {
        self.file = Some(text);
        self
    }
}

/// Words that clap does not take.
const COMMAND_LINES: [Wrong; 38] = [
    wrong("", USAGE, &["Usage: lock"]),
    wrong("runn a -- true", USAGE, &["'runn'", "'run'"]),
    wrong("--colour status a", USAGE, &["'--colour'"]),
    wrong("run", USAGE, &["NAME"]),
    wrong("run a", USAGE, &["<COMMAND>", "the command follows a '--'"]),
    wrong("run a --", USAGE, &["<COMMAND>"]),
    wrong("run a true", USAGE, &["'true'", "a '--' goes before the command: '-- true'"]),
    wrong("run a b -- true", USAGE, &["'b'", "a '--' goes before the command"]),
    wrong("run -x -- true", USAGE, &["'-x'", "write '--name=-x'", "lock run [OPTIONS] <NAME> -- <COMMAND>..."]),
    wrong("run --wiat 1s a -- true", USAGE, &["'--wiat'", "'--wait'"]),
    wrong("elect -x -- true", USAGE, &["'-x'", "write '--name=-x'"]),
    wrong("run --name=-x a -- true", USAGE, &["--name", "cannot be used with"]),
    wrong("status -x", USAGE, &["'-x'", "use '-- -x'"]),
    wrong("unlock a", USAGE, &["'unlock'", "there is nothing to unlock", "lock run NAME -- COMMAND"]),
    wrong("acquire a", USAGE, &["'acquire'", "`lock run NAME -- COMMAND` holds a lock while COMMAND runs"]),
    wrong("--quiet -v status a", USAGE, &["--quiet", "cannot be used with"]),
    wrong("run a --wait 5 -- true", USAGE, &["'5'", "--wait", "time unit needed"]),
    wrong("run a --wait=-1s -- true", USAGE, &["'-1s'", "--wait"]),
    wrong("run a --wait 1s --no-wait -- true", USAGE, &["--wait", "cannot be used with", "--no-wait"]),
    wrong("run a --ttl soon -- true", USAGE, &["'soon'", "--ttl"]),
    wrong("run a --max-hold x -- true", USAGE, &["'x'", "--max-hold"]),
    wrong("run a --at-least 2m --max-hold 1m -- true", USAGE, &["--at-least 2m", "longer than --max-hold 1m"]),
    wrong("run a --kill-after 1y1 -- true", USAGE, &["'1y1'", "--kill-after"]),
    wrong("run a --permits 0 -- true", USAGE, &["'0'", "--permits"]),
    wrong("run a --permits many -- true", USAGE, &["'many'", "--permits"]),
    wrong("run a --shared --permits 2 -- true", USAGE, &["--shared", "cannot be used with", "--permits"]),
    wrong("run a --conflict-exit-code 256 -- true", USAGE, &["'256'", "--conflict-exit-code", "255"]),
    wrong("status", USAGE, &["<NAME>"]),
    wrong("status a b", USAGE, &["'b'"]),
    wrong("watch", USAGE, &["<NAME>"]),
    wrong("elect a", USAGE, &["<COMMAND>"]),
    wrong("elect a --observe -- true", USAGE, &["--observe", "cannot be used with"]),
    wrong("elect a --observe --payload x", USAGE, &["--observe", "cannot be used with", "--payload"]),
    wrong("elect a --json -- true", USAGE, &["--json", "cannot be used with"]),
    wrong("redlock", USAGE, &["Usage: lock redlock"]),
    wrong("redlock replace a", USAGE, &["<NEW>"]),
    wrong("--url redis://h --config f status a", USAGE, &["--url", "cannot be used with", "--config"]),
    wrong("--url local:///tmp/x status {long}", USAGE, &["invalid lock name", "1 to 512 bytes"]),
];

/// URLs, for which nobody is asked.
const URLS: [Wrong; 43] = [
    wrong("--url redis status a", CONFIG, &["url", "no `://`"]),
    wrong("--url http://h status a", CONFIG, &["backend", "\"http\"", "redis, rediss"]),
    wrong("--url redis:// status a", CONFIG, &["host"]),
    wrong("--url redis://h:0 status a", CONFIG, &["host", "1 to 65535"]),
    wrong("--url redis://h:99999 status a", CONFIG, &["url", "port"]),
    wrong("--url redis://h1,h2 status a", CONFIG, &["host", "h1,h2", "one server"]),
    wrong("--url redis://h/x status a", CONFIG, &["path", "\"/x\"", "number of a database"]),
    wrong("--url redis://u:p@w@h status a", CONFIG, &["url", "%40"]),
    wrong("--url redis://h#x status a", CONFIG, &["url", "%23"]),
    wrong("--url redis://h?ttl=5 status a", CONFIG, &["ttl = \"5\"", "a duration from 100ms"]),
    wrong("--url redis://h?ttl=1ms status a", CONFIG, &["ttl = \"1ms\"", "a duration from 100ms"]),
    wrong("--url redis://h?tll=5s status a", CONFIG, &["tll = \"5s\"", "`ttl`, probably"]),
    wrong("--url redis://h?ttl=5s&ttl=6s status a", CONFIG, &["ttl", "once only"]),
    wrong("--url redis://h?prefix=a:b status a", CONFIG, &["prefix = \"a:b\""]),
    wrong("--url redis://h?strategy=fair status a", CONFIG, &["strategy = \"fair\"", "queue or plain"]),
    wrong("--url redis://h?look_again=1s status a", CONFIG, &["look_again", "strategy=plain"]),
    wrong("--url redis://h?era=-1 status a", CONFIG, &["era = \"-1\"", "a whole number"]),
    wrong("--url redis://h?min_replicas=x status a", CONFIG, &["min_replicas = \"x\"", "0 to 100"]),
    wrong("--url redis://h?passwd=geheim status a", CONFIG, &["passwd = \"***\"", "`username` and `password`"]),
    wrong("--url redis+sentinel://h status a", CONFIG, &["path", "/orders"]),
    wrong("--url redis+cluster://h/3 status a", CONFIG, &["db = \"3\"", "the only one of a cluster"]),
    wrong("--url redlock://a,b status a", CONFIG, &["host = \"a:6379,b:6379\"", "an odd number"]),
    wrong("--url redlock://a,b,A status a", CONFIG, &["host = \"a:6379\"", "each listed once"]),
    wrong("--url redlock://a,b,c/0 status a", CONFIG, &["path = \"/0\""]),
    wrong("--url redlock://a,b,c?max_ttl=1s&ttl=2s status a", CONFIG, &["ttl = \"2s\"", "to 1s"]),
    wrong("--url redlock://a,b,c?restart_quarantine=no status a", CONFIG, &["restart_quarantine", "on or off"]),
    wrong("--url zk:// status a", CONFIG, &["hosts", "at least one host"]),
    wrong("--url zk://h/app/ status a", CONFIG, &["path = \"/app/\"", "allowed: /app, without the slash at its end"]),
    wrong("--url zk://h/a//b status a", CONFIG, &["path = \"/a//b\"", "without empty parts"]),
    wrong("--url zk://h?tick_time=5s status a", CONFIG, &["tick_time = \"5s\"", "at most a third of session_timeout"]),
    wrong("--url zk://me@h status a", CONFIG, &["user = \"me\"", "a user with a password"]),
    wrong("--url zk://h?acl=creator_all status a", CONFIG, &["acl", "anyone_all"]),
    wrong("--url zk://h?acl=mine status a", CONFIG, &["acl = \"mine\"", "creator_all or"]),
    wrong("--url zk://h?ttl=5s status a", CONFIG, &["ttl = \"5s\"", "session_timeout"]),
    wrong("--url zks://h?server_name=x&ca_file={ca} status a", CONFIG, &["server_name", "with zks:// these keys"]),
    wrong("--url local:///tmp/x?ttl=5s status a", CONFIG, &["ttl = \"5s\"", "local://"]),
    wrong("--url local://me@/tmp/x status a", CONFIG, &["url", "empty host"]),
    wrong("--url redis://h?ca_file={ca} status a", CONFIG, &["ca_file", "redis://, which does not encrypt"]),
    wrong("--url zk://h?key_file={key} status a", CONFIG, &["key_file", "zk://, which does not encrypt"]),
    wrong("--url etcd://h?cert_file={cert} status a", CONFIG, &["cert_file", "etcd://, which does not encrypt"]),
    wrong("--url etcds://a+b?ca_file={ca} status a", CONFIG, &["host = \"a+b\"", "a DNS name"]),
    wrong(
        "--url redis://h?password_file=/nowhere/at/all status a",
        CONFIG,
        &["password_file = \"/nowhere/at/all\"", "No such file"],
    ),
    wrong("--url redis://u:geheim@h?password_file={file} status a", CONFIG, &["password_file", "or only the file"])
        .with_file("geheim"),
];

/// Files, and what is in them.
const FILES: [Wrong; 24] = [
    wrong("--config /nowhere/at/all status a", CONFIG, &["configuration file = \"/nowhere/at/all\"", "No such file"]),
    wrong("--config {file} status a", CONFIG, &["configuration file = \"line 2\"", "TOML"])
        .with_file("[lock]\nurl = redis\n"),
    wrong("--config {file} status a", CONFIG, &["lock = \"nothing\"", "[lock]"])
        .with_file("[locks]\nurl = 'redis://h'\n"),
    wrong("--config {file} status a", CONFIG, &["lock", "a table, [lock]"]).with_file("lock = 3\n"),
    wrong("--config {file} status a", CONFIG, &["neither `url` nor `backend`"]).with_file("[lock]\nttl = '5s'\n"),
    wrong("--config {file} status a", CONFIG, &["hosts", "either `url`, or"])
        .with_file("[lock]\nurl = 'redis://h'\nhosts = ['h']\n"),
    wrong("--config {file} status a", CONFIG, &["hosts", "a list of strings"])
        .with_file("[lock]\nbackend = 'redis'\nhosts = 'h'\n"),
    wrong("--config {file} status a", CONFIG, &["hosts", "a list of strings"])
        .with_file("[lock]\nbackend = 'redis'\nhosts = [1]\n"),
    wrong("--config {file} status a", CONFIG, &["host = ", "it is called `hosts`"])
        .with_file("[lock]\nbackend = 'redis'\nhost = 'h'\n"),
    wrong("--config {file} status a", CONFIG, &["user = ", "it is called `username`"])
        .with_file("[lock]\nurl = 'redis://h'\nuser = 'me'\n"),
    wrong("--config {file} status a", CONFIG, &["ttl", "a string, a whole number"])
        .with_file("[lock]\nurl = 'redis://h'\nttl = [1]\n"),
    wrong("--config {file} status a", CONFIG, &["password", "a string, in quotes"])
        .with_file("[lock]\nurl = 'redis://h'\npassword = 5\n"),
    wrong("--config {file} status a", CONFIG, &["password = \"***\"", "once only"])
        .with_file("[lock]\nurl = 'redis://:geheim@h'\npassword = 'geheim'\n"),
    wrong("--config {file} status a", CONFIG, &["ttl = \"5 minuts\"", "a duration"])
        .with_file("[lock]\nurl = 'redis://h'\nttl = '5 minuts'\n"),
    wrong("--url redis://h?password_file={file} status a", CONFIG, &["password_file", "it is empty"]).with_file(""),
    wrong("--url redis://h?password_file={file} status a", CONFIG, &["password_file", "it has 2 lines"])
        .with_file("geheim\ngeheim\n"),
    wrong(
        "--url rediss://h?ca_file=/nowhere/at/all status a",
        CONFIG,
        &["ca_file = \"/nowhere/at/all\"", "No such file"],
    ),
    wrong("--url rediss://h?ca_file={file} status a", CONFIG, &["ca_file", "it holds no certificate"])
        .with_file("geheim"),
    wrong("--url redlocks://a,b,c?ca_file={key} status a", CONFIG, &["ca_file", "it holds no certificate"]),
    wrong(
        "--url rediss://h?ca_file={ca}&cert_file={cert} status a",
        CONFIG,
        &["cert_file", "only together with `key_file`"],
    ),
    wrong(
        "--url zks://h?ca_file={ca}&key_file={key} status a",
        CONFIG,
        &["key_file", "only together with `cert_file`"],
    ),
    wrong(
        "--url rediss://h?ca_file={ca}&cert_file={cert}&key_file={other_key} status a",
        CONFIG,
        &["key_file", "the key of cert_file"],
    ),
    wrong(
        "--url zks://h?ca_file={ca}&cert_file={cert}&key_file={cert} status a",
        CONFIG,
        &["key_file", "it holds no private key"],
    ),
    wrong("--url rediss://h?ca_file={ca}&server_name=a+b status a", CONFIG, &["server_name = \"a b\"", "a DNS name"]),
];

/// Variables of the environment.
const VARIABLES: [Wrong; 6] = [
    wrong("status a", CONFIG, &["LOCK_ULR", "`LOCK_URL`"]).with_variable("LOCK_ULR", "redis://:geheim@h"),
    wrong("status a", CONFIG, &["configuration file = \"/nowhere/at/all\""])
        .with_variable("LOCK_CONFIG", "/nowhere/at/all"),
    wrong("status a", CONFIG, &["url", "no `://`"]).with_variable("LOCK_URL", "redis"),
    wrong("status a", CONFIG, &["no lock service is named", "LOCK_REQUIRE_SERVICE"])
        .with_variable("LOCK_REQUIRE_SERVICE", "1"),
    wrong("--service-required run a -- true", CONFIG, &["no lock service is named", "--service-required"]),
    wrong("status a", USAGE, &["'perhaps'"]).with_variable("LOCK_REQUIRE_SERVICE", "perhaps"),
];

/// Servers that do not take what is right in itself.
const SERVERS: [Wrong; 14] = [
    wrong("--url redis://127.0.0.1:{closed} status a", UNAVAILABLE, &["redis://127.0.0.1", "Connection refused"]),
    wrong(
        "--url redis://me:geheim@127.0.0.1:{redis} status a",
        UNAVAILABLE,
        &["redis://127.0.0.1", "authentication failed"],
    ),
    wrong("--url redis://me@127.0.0.1:{redis}?password_file={file} status a", UNAVAILABLE, &["authentication failed"])
        .with_file("geheim"),
    wrong(
        "--url redlock://127.0.0.1:{closed},127.0.0.1:{redis},localhost:{redis} run a -- true",
        CONFIG,
        &["host", "one and the same"],
    ),
    wrong(
        "--url rediss://127.0.0.1:{tls}?ca_file={ca} status a",
        UNAVAILABLE,
        &["asks for a client certificate: set `cert_file`"],
    ),
    wrong("--url rediss://127.0.0.1:{redis}?ca_file={ca} status a", UNAVAILABLE, &["does not speak TLS"]),
    wrong("--url redis://127.0.0.1:{tls} status a", UNAVAILABLE, &["as a port for TLS does"]),
    wrong(
        "--url redis://127.0.0.1:{web} status a",
        UNAVAILABLE,
        &["hung up while connecting", "one of another service"],
    ),
    wrong(
        "--url redis://127.0.0.1:{redis}?strategy=plain run a --shared -- true",
        CONFIG,
        &["a read-write lock is not supported by the backend redis with strategy=plain; leave that setting out"],
    ),
    wrong("run a --payload {long}{long} -- true", USAGE, &["--payload", "1026 bytes", "at most 1024"]),
    wrong(
        "--url rediss://127.0.0.1:{expired}?ca_file={ca} status a",
        UNAVAILABLE,
        &["server's certificate has expired"],
    ),
    wrong(
        "--url rediss://127.0.0.1:{named}?ca_file={ca} status a",
        UNAVAILABLE,
        &["not for", "db.example.com", "`server_name`"],
    ),
    wrong("--url zk://127.0.0.1:{closed}?connect_timeout=300ms status a", UNAVAILABLE, &["zk://127.0.0.1", "300ms"]),
    wrong(
        "--url zk://127.0.0.1:{web}?connect_timeout=3s status a",
        UNAVAILABLE,
        &["no server answers as one of ZooKeeper does", "its port not the one for clients"],
    ),
];

/// What `{...}` in a [`Wrong`] stands for.
struct Surroundings(Vec<(&'static str, String)>);

impl Surroundings {
    fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }
}

async fn redis(certificate: ServerCertificate) -> Redis {
    Redis::start_as_told(RedisOptions::default().with_tls(Some(certificate))).await.unwrap()
}

/// The port of a server that speaks another protocol.
async fn web() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = connection.read(&mut [0; 4096]).await;
                let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            });
        }
    });
    port
}

#[tokio::test]
async fn whatever_is_wrong_has_its_own_message_and_exit_status() {
    let certificates = Certificates::shared().unwrap();
    let path = |path: std::path::PathBuf| path.display().to_string();
    let [(cert, key), (_, other_key)] = [ClientCertificate::Good, ClientCertificate::OfAnotherAuthority]
        .map(|which| certificates.client(which).unwrap());
    let (good, expired) = (redis(ServerCertificate::Good).await, redis(ServerCertificate::Expired).await);
    let named = redis(ServerCertificate::OfAnotherName).await;
    // Nobody listens where this one was.
    let mut closed = Redis::start().await.unwrap();
    closed.kill();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let surroundings = Surroundings(vec![
        ("ca", path(certificates.ca_file())),
        ("cert", path(cert)),
        ("key", path(key)),
        ("other_key", path(other_key)),
        ("file", path(file.clone())),
        ("long", "n".repeat(513)),
        ("redis", good.port().to_string()),
        ("tls", good.client_port().to_string()),
        ("expired", expired.client_port().to_string()),
        ("named", named.client_port().to_string()),
        ("closed", closed.port().to_string()),
        ("web", web().await.to_string()),
    ]);
    let mut not_as_expected = Vec::new();
    let tables = [&COMMAND_LINES[..], &URLS, &FILES, &VARIABLES, &SERVERS];
    let all: Vec<&Wrong> = tables.into_iter().flatten().collect();
    for one in &all {
        if let Some(text) = one.file {
            fs::write(&file, text).unwrap();
        }
        let line = surroundings.fill(one.line);
        let mut command = Command::new(env!("CARGO_BIN_EXE_lock"));
        for variable in ["LOCK_URL", "LOCK_CONFIG", "LOCK_PASSWORD", "LOCK_REQUIRE_SERVICE"] {
            command.env_remove(variable);
        }
        command.args(line.split_whitespace()).envs(one.variable).env("HOME", dir.path()).kill_on_drop(true);
        let ran = finish(&mut command).await;
        let mut rest = ran.stderr.as_str();
        let is_said = one.says.iter().all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        });
        if ran.status != Some(one.status)
            || !is_said
            || ran.stderr.contains("geheim")
            || ran.stderr.contains("panicked")
        {
            not_as_expected.push(format!(
                "lock {line}\n  expected {} {:?}\n  got {:?} {}",
                one.status, one.says, ran.status, ran.stderr
            ));
        }
    }
    assert!(not_as_expected.is_empty(), "{} of {}:\n{}", not_as_expected.len(), all.len(), not_as_expected.join("\n"));
}
