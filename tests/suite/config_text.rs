//! Whatever people write as a URL or a file: reading it never panics, what was read reads back, and no error shows a secret.

use lock::{Config, FencingToken, LockName};
use proptest::prelude::*;

const SECRET: &str = "hunter2";

/// Text that is made of the parts of URLs and files, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "\\PC{0,4}",
        prop_oneof![
            Just("memory"),
            Just("redis"),
            Just("redlock"),
            Just("zk"),
            Just("local"),
            Just("://"),
            Just(":"),
            Just("@"),
            Just(","),
            Just("/"),
            Just("?"),
            Just("&"),
            Just("="),
            Just("#"),
            Just("["),
            Just("]"),
            Just("%"),
            Just("%2"),
            Just("%00"),
            Just("127.0.0.1"),
            Just("::1"),
            Just("65536"),
            Just("ttl=3s"),
            Just("[lock]\n"),
            Just("url = "),
            Just("backend = "),
            Just("hosts = "),
            Just("'"),
            Just("\""),
            Just("\n"),
            Just("password = "),
            Just("99999999999y"),
        ]
        .prop_map(str::to_owned),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_url_and_no_file_makes_it_panic_and_what_was_read_reads_back(text in pieces()) {
        let read = [Config::from_url(&text), Config::from_url(&format!("memory://{text}")), Config::from_toml(&text)];
        for config in read.into_iter().flatten() {
            let url = config.to_url();
            let again = Config::from_url(&url);
            prop_assert!(again.is_ok(), "{:?} of {:?}: {:?}", url, text, again.err());
            prop_assert_eq!(again.unwrap().to_url(), url);
        }
    }

    #[test]
    fn a_url_reads_back_with_any_user_password_and_path(
        user in "\\PC{1,8}", password in "\\PC{1,8}", path in "[a-z%/ é]{0,8}", value in "\\PC{0,8}",
    ) {
        let toml = |text: &str| toml_text(text);
        let file = format!(
            "[lock]\nbackend = 'memory'\nhosts = ['h:1']\nusername = {}\npassword = {}\npath = {}\nprefix = {}\n",
            toml(&user), toml(&password), toml(&path), toml(&value),
        );
        let config = Config::from_toml(&file);
        prop_assume!(config.is_ok());
        let url = config.unwrap().to_url();
        prop_assert_eq!(Config::from_url(&url).map(|config| config.to_url()).ok(), Some(url));
    }

    #[test]
    fn no_error_and_no_debug_form_shows_a_password(before in pieces(), after in pieces()) {
        prop_assume!(!before.contains(SECRET) && !after.contains(SECRET));
        let urls = [format!("memory://me:{SECRET}@{after}"), format!("redis://me:{SECRET}@h{after}")];
        let files = [
            format!("[lock]\nurl = \"redis://me:{SECRET}@h\"\n{before}"),
            format!("[lock]\nbackend = 'redis'\npassword = '{SECRET}'\n{before}"),
        ];
        let read = urls.iter().map(|url| Config::from_url(url)).chain(files.iter().map(|file| Config::from_toml(file)));
        for (read, text) in read.zip(urls.iter().chain(&files)) {
            let shown = match read {
                Ok(config) => format!("{config} {config:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            prop_assert!(!shown.contains(SECRET), "{text:?}: {shown}");
        }
    }

    #[test]
    fn a_name_is_refused_or_leads_to_one_component_and_back(name in prop_oneof![
        any::<String>(), "[a-z/%.\\x00]{0,12}", "é{250,260}", Just("x".repeat(100_000)),
    ]) {
        if let Ok(name) = LockName::new(&name) {
            prop_assert_eq!(LockName::from_component(&name.to_component()), Some(name));
        }
        if let Some(read) = LockName::from_component(&name) {
            prop_assert_eq!(read.to_component(), name);
        }
    }

    #[test]
    fn a_fencing_token_is_read_from_what_it_is_written_as_and_from_digits_only(text in prop_oneof![
        any::<String>(), "[0-9+-]{0,24}", "[+]?[0-9]{1,11}-[+]?[0-9]{1,21}",
    ]) {
        if let Ok(token) = text.parse::<FencingToken>() {
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'), "{text:?}");
            prop_assert_eq!(token.to_string().parse::<FencingToken>().ok(), Some(token));
        }
    }
}

/// As a basic string of TOML.
fn toml_text(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}
