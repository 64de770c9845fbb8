use super::*;
use crate::node::Address;

fn settings(host: &str, values: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::new("redis");
    settings.hosts = vec![(host.to_owned(), None)];
    settings.values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    settings
}

fn refused(settings: Settings) -> String {
    Config::from_settings(settings).unwrap_err().to_string()
}

#[test]
fn what_is_not_set_has_its_default() {
    let config = Config::from_settings(settings("h", &[])).unwrap();
    assert_eq!((config.node.host.as_str(), config.node.port, config.node.db), ("h", 6379, 0));
    assert_eq!((config.ttl, config.prefix.as_str()), (Duration::from_secs(30), "lock"));
}

#[test]
fn every_setting_of_a_url_is_taken() {
    let mut given = settings("[::1]", &[("ttl", "5s"), ("prefix", "a"), ("connect_timeout", "2s")]);
    given.values.insert("response_timeout".to_owned(), "200ms".to_owned());
    (given.path, given.username, given.password) = ("/3".to_owned(), Some("u".to_owned()), Some("p".to_owned()));
    let config = Config::from_settings(given).unwrap();
    assert_eq!((config.node.host.as_str(), config.node.db, config.prefix.as_str()), ("::1", 3, "a"));
    assert_eq!(config.node.connect_timeout, Duration::from_secs(2));
    assert_eq!(config.node.response_timeout, Duration::from_millis(200));
    assert_eq!(config.ttl, Duration::from_secs(5));
    let shown = format!("{config:?}");
    assert!(shown.contains("***") && !shown.contains("\"p\""), "{shown}");
}

#[test]
fn what_is_not_allowed_is_named_with_what_is() {
    let error = refused(settings("h", &[("ttl", "10ms")]));
    assert!(error.contains("ttl") && error.contains("10ms") && error.contains("100ms"), "{error}");
    let error = refused(settings("h", &[("queue", "fifo")]));
    assert!(error.contains("queue") && error.contains("fifo") && error.contains("strategy=plain"), "{error}");
    let error = refused(settings("h", &[("prefix", "a:b")]));
    assert!(error.contains("prefix") && error.contains("a:b"), "{error}");
    let error = refused(settings("h", &[("tll", "1s")]));
    assert!(error.contains("tll") && error.contains("response_timeout"), "{error}");
    let mut given = settings("h", &[]);
    given.scheme = "rediss".to_owned();
    given.values.insert("ca_file".to_owned(), "/nowhere/ca.pem".to_owned());
    let error = refused(given.clone());
    assert!(error.contains(if cfg!(feature = "_tls") { "ca_file" } else { "rediss" }), "{error}");
    given.scheme = "redis".to_owned();
    assert!(refused(given).contains("ca_file"));
    let mut given = settings("h", &[]);
    given.path = "/x".to_owned();
    assert!(refused(given).contains("/x"));
    let mut given = settings("h", &[]);
    given.hosts.push(("i".to_owned(), None));
    let error = refused(given);
    assert!(error.contains("h,i") && error.contains("redlock"), "{error}");
}

#[test]
fn the_strategy_is_one_of_two_and_only_plain_looks_again() {
    let strategy = |values: &[(&str, &str)]| Config::from_settings(settings("h", values)).unwrap().strategy;
    assert_eq!((strategy(&[]), strategy(&[("strategy", "queue")])), (Strategy::Queue, Strategy::Queue));
    assert_eq!(strategy(&[("strategy", "plain")]), Strategy::Plain { look_again: Duration::from_millis(500) });
    let given = [("strategy", "plain"), ("look_again", "20ms")];
    assert_eq!(strategy(&given), Strategy::Plain { look_again: Duration::from_millis(20) });
    let error = refused(settings("h", &[("strategy", "fair")]));
    assert!(error.contains("fair") && error.contains("queue or plain"), "{error}");
    let error = refused(settings("h", &[("look_again", "1s")]));
    assert!(error.contains("look_again") && error.contains("1s") && error.contains("strategy=plain"), "{error}");
    for wrong in ["9ms", "61s"] {
        let error = refused(settings("h", &[("strategy", "plain"), ("look_again", wrong)]));
        assert!(error.contains("look_again") && error.contains("10ms to 1m"), "{error}");
    }
    let at = Config::new("h", 1).with_strategy(Strategy::Plain { look_again: Duration::ZERO });
    assert!(at.check().unwrap_err().to_string().contains("look_again"));
}

#[test]
fn the_bare_name_is_a_key_with_plain_only_and_the_keys_beside_the_locks_have_a_beginning_of_their_own() {
    let plain = |prefix| settings("h", &[("strategy", "plain"), ("prefix", prefix)]);
    assert_eq!(Config::from_settings(plain("")).unwrap().prefix, "");
    assert_eq!(Config::from_settings(plain("a")).unwrap().prefix, "a");
    for prefix in ["lock-plain", "a:b"] {
        let error = refused(plain(prefix));
        assert!(error.contains(prefix) && error.contains("not `lock-plain`"), "{error}");
    }
    assert!(refused(settings("h", &[("prefix", "")])).contains("strategy=plain"));
    assert!(Config::from_settings(settings("h", &[("prefix", "lock-plain")])).is_ok());
}

fn sentinels(path: &str, values: &[(&str, &str)]) -> Settings {
    let mut settings = settings("a", values);
    settings.scheme = "redis+sentinel".to_owned();
    settings.hosts.push(("b".to_owned(), Some(7)));
    settings.path = path.to_owned();
    settings
}

#[test]
fn sentinels_are_given_with_their_service_and_a_database() {
    let given = sentinels("/orders/3", &[("sentinel_username", "s"), ("sentinel_password", "geheim")]);
    let config = Config::from_settings(given).unwrap();
    let Deployment::Sentinel(sentinel) = &config.deployment else { panic!("{config:?}") };
    assert_eq!((sentinel.service.as_str(), config.node.db), ("orders", 3));
    assert_eq!(sentinel.sentinels, [Address::new("a", 26_379), Address::new("b", 7)]);
    assert_eq!(
        (sentinel.username.as_deref(), sentinel.password.as_ref()),
        (Some("s"), Some(&Password::from("geheim")))
    );
    assert_eq!(config.url(), "redis+sentinel://a:26379,b:7/orders/3");
    assert!(!format!("{config:?}").contains("geheim"));
}

#[test]
fn sentinels_without_a_service_are_refused_and_so_is_a_database_that_is_none() {
    for path in ["", "/", "/a/b", "/a/1/2", "/a b"] {
        let error = refused(sentinels(path, &[]));
        assert!(error.contains("path") || error.contains("service"), "{path:?}: {error}");
    }
}

#[test]
fn what_is_about_several_servers_is_no_setting_of_a_single_one() {
    for key in ["sentinel_password", "address_map"] {
        assert!(refused(settings("h", &[(key, "1s")])).contains(key));
    }
    let error = refused(sentinels("/a", &[("address_map", "a:1")]));
    assert!(error.contains("address_map") && error.contains("a:1"), "{error}");
    let given = sentinels("/a", &[("address_map", "10.0.0.1:1=h:2")]);
    let config = Config::from_settings(given).unwrap();
    assert_eq!(config.address_map.reached(&Address::new("10.0.0.1", 1)), &Address::new("h", 2));
}
