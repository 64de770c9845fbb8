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
        ("[lock]\nbackend = 'memory'\n[lokc]\n", "lokc"),
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
