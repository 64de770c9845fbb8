//! The configuration, as programs see it.

use std::time::Duration;

use lock::{Config, Error};

fn refused(result: Result<Config, Error>) -> (String, String, String) {
    match result {
        Err(Error::Config { key, value, allowed }) => (key, value, allowed),
        other => panic!("not refused as configuration: {other:?}"),
    }
}

async fn refused_on_connecting(config: Config) -> (String, String, String) {
    refused(config.connect().await.map(|_| unreachable!("connected")))
}

#[tokio::test]
async fn a_url_connects_and_locks() {
    let locks = lock::connect("memory://config-url?ttl=5s&era=4").await.unwrap();
    let guard = locks.mutex("a").lock().await.unwrap();
    assert_eq!(guard.token().era, 4);
    let holders = locks.inspect("a").await.unwrap().holders;
    let payload = String::from_utf8_lossy(&holders[0].payload).into_owned();
    assert!(payload.contains(&format!("pid={}", std::process::id())), "{payload}");
    guard.release().await.unwrap();
    locks.close(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_file_connects_and_locks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lock.toml");
    std::fs::write(&file, "[lock]\nbackend = 'memory'\nhosts = ['config-file']\nttl = '5s'\nera = 4\n").unwrap();
    let locks = Config::from_file(&file).unwrap().connect().await.unwrap();
    assert_eq!(locks.mutex("a").lock().await.unwrap().token().era, 4);
}

#[test]
fn a_url_and_the_same_spelled_out_are_one_configuration() {
    let url = Config::from_url("memory://me:a%20b@h1:1,h2/x/y?era=3&ttl=5s").unwrap();
    let spelled_out = "[lock]\nbackend = 'memory'\nhosts = ['h1:1', 'h2']\npath = 'x/y'\nera = 3\nttl = '5s'\n\
                       username = 'me'\npassword = 'a b'\n";
    let mixed = "[lock]\nurl = 'memory://h1:1,h2/x/y?era=3'\nttl = '5s'\nusername = 'me'\npassword = 'a b'\n";
    for text in [spelled_out, mixed] {
        let config = Config::from_toml(text).unwrap();
        assert_eq!(config.to_url(), url.to_url());
    }
}

#[tokio::test]
async fn an_unknown_scheme_is_named_with_the_allowed_ones() {
    for config in [Config::from_url("chalk://h"), Config::from_toml("[lock]\nbackend = 'chalk'")] {
        let (key, value, allowed) = refused_on_connecting(config.unwrap()).await;
        assert_eq!((key.as_str(), value.as_str()), ("backend", "chalk"));
        for scheme in lock::registry().schemes() {
            assert!(allowed.contains(scheme.name), "{allowed}");
        }
    }
}

#[tokio::test]
async fn an_unknown_key_is_named_with_its_value_and_the_allowed_ones() {
    let (key, value, allowed) = refused_on_connecting(Config::from_url("memory://?tll=5s").unwrap()).await;
    assert_eq!((key.as_str(), value.as_str()), ("tll", "5s"));
    assert!(allowed.contains("ttl") && allowed.contains("era"), "{allowed}");
}

#[tokio::test]
async fn a_bad_value_is_named_with_what_is_allowed() {
    for (url, bad) in [("memory://?ttl=soon", "soon"), ("memory://?ttl=0s", "0s"), ("memory://?era=-1", "-1")] {
        let (_, value, allowed) = refused_on_connecting(Config::from_url(url).unwrap()).await;
        assert_eq!(value, bad);
        assert!(!allowed.is_empty());
    }
}

#[test]
fn what_a_file_must_not_hold_is_named() {
    for (text, named) in [
        ("", "lock"),
        ("lock = 3", "lock"),
        ("[lock]\nttl = '3s'", "lock"),
        ("[lock]\nurl = 'memory://'\nbackend = 'memory'", "backend"),
        ("[lock]\nurl = 'memory://?ttl=3s'\nttl = '3s'", "ttl"),
        ("[lock]\nurl = 'memory://:x@h'\npassword = 'x'", "password"),
        ("[lock]\nbackend = 'memory'\nttl = 3.5", "ttl"),
        ("[lock]\nbackend = 'memory'\nhosts = 'h'", "hosts"),
        ("[lock]\nbackend = 'memory'\nhosts = [1]", "hosts"),
        ("[lock]\nbackend = 'memory'\nhosts = ['h:0']", "host"),
        ("[lock]\nbackend = 3", "backend"),
        ("[lock]\nbackend = 'memory'\nbackend = 'memory'", "configuration file"),
    ] {
        let (key, _, allowed) = refused(Config::from_toml(text));
        assert_eq!(key, named, "{text}");
        assert!(!allowed.is_empty());
    }
}

#[tokio::test]
async fn a_password_shows_neither_in_debug_nor_in_an_error() {
    let config = Config::from_url("memory://me:hunter2@h?ttl=1s").unwrap();
    assert!(!format!("{config:?} {config}").contains("hunter2"));
    assert!(config.to_url().contains("hunter2"));
    for text in [
        "[lock]\nbackend = 'memory'\npasswrod = 'hunter2'",
        "[lock]\nbackend = 'memory'\ndb_secret = 'hunter2'",
        "[lock]\nurl = 'memory://'\npasswd = 'hunter2'",
    ] {
        let (_, value, _) = refused_on_connecting(Config::from_toml(text).unwrap()).await;
        assert_eq!(value, "***", "{text}");
    }
    for text in [
        "[lock]\nbackend = 'memory'\npassword = 22222",
        "[lock]\nbackend = 'memory'\npassword = 'hunter2",
        "[lock]\nbackend = 'memory'\nhosts = ['me:hunter2@h']",
        "[lock]\nurl = 'memory//me:hunter2@h'",
        "[lock]\nurl = 'memory://me:hunter2@h:x'",
    ] {
        let error = Config::from_toml(text).unwrap_err().to_string();
        assert!(!error.contains("hunter2") && !error.contains("22222"), "{text}: {error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let (_, value, _) = refused(Config::from_file("/nowhere/at/all.toml"));
    assert_eq!(value, "/nowhere/at/all.toml");
}

/// The configuration of an application, in which the lock is one part.
#[derive(serde::Deserialize)]
struct Application {
    port: u16,
    lock: Config,
}

#[tokio::test]
async fn an_application_has_the_lock_among_its_own_settings() {
    let text =
        "port = 8080\n[lock]\nurl = 'memory://of-an-application'\nttl = '5s'\n[database]\nurl = 'postgres://h'\n";
    let own: Application = toml::from_str(text).unwrap();
    assert_eq!((own.port, own.lock.to_url().as_str()), (8080, "memory://of-an-application?ttl=5s"));
    own.lock.connect().await.unwrap().mutex("a").lock().await.unwrap().release().await.unwrap();
    assert_eq!(Config::from_toml(text).unwrap().to_url(), "memory://of-an-application?ttl=5s");
    let wrong = toml::from_str::<Application>("port = 1\n[lock]\nurl = 'redis://:geheim@h'\npassword = 'geheim'\n");
    let error = wrong.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("password") && error.contains("once only"), "{error}");
}

/// The examples in TOML of a text.
fn examples(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("///").trim_start_matches("//!"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let parts: Vec<_> =
        text.split("```toml\n").skip(1).map(|part| part.split("```").next().unwrap().to_owned()).collect();
    parts.into_iter().filter(|part| part.contains("[lock]"))
}

#[tokio::test]
async fn every_example_in_the_documents_is_a_configuration() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.extend(["README.md", "src/config.rs", "src/lib.rs"].map(|file| root.join(file)));
    let mut tried = 0;
    for file in files.into_iter().filter(|file| file.is_file()) {
        for example in examples(&std::fs::read_to_string(&file).unwrap()) {
            // Nobody is to be waited for who is at none of these addresses.
            let soon = example.replace("[lock]", "[lock]\nconnect_timeout = '10ms'\noutage_timeout = '0s'");
            let config =
                Config::from_toml(&soon).unwrap_or_else(|error| panic!("{}: {error}\n{example}", file.display()));
            match config.connect().await {
                Ok(_) | Err(Error::Unavailable { .. }) => tried += 1,
                Err(error) => panic!("{}: {error}\n{example}", file.display()),
            }
        }
    }
    assert!(tried >= 3, "{tried} examples were found");
}
