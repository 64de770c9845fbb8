//! docs/configuration.md says what the drivers say of their settings.

use std::{fmt::Write as _, fs, path::PathBuf};

use lock_core::SettingDoc;

/// Has the test write the document instead.
const WRITE: &str = "LOCK_WRITE_CONFIGURATION";

const HEAD: &str = "\
# Configuration

Where a program connects to is one URL, the same spelled out in a TOML file, or either of them named by the environment:
`LOCK_URL`, else the file of `LOCK_CONFIG`. Settings are keys of the URL's query or of the table `[lock]`. An unknown key or a
value that is not allowed is an error that names the key, the value, and what is allowed.

This page is written from what the drivers say of themselves: `cargo xtask configuration`.

```toml
[lock]
url = \"zk://10.0.0.1,10.0.0.2,10.0.0.3/app\"
session_timeout = \"10s\"
era = 1
```

## Every backend

";

fn table(text: &mut String, settings: &[SettingDoc]) {
    text.push_str("| key | default | allowed | what it is for |\n|---|---|---|---|\n");
    for setting in settings {
        let default = setting.default.as_ref().map_or_else(String::new, |default| format!("`{default}`"));
        let _ = writeln!(text, "| `{}` | {default} | {} | {} |", setting.key, setting.allowed, setting.about);
    }
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    table(&mut text, &lock::Config::common_settings());
    for driver in lock::registry().drivers() {
        for scheme in driver.schemes() {
            let (name, summary) = (scheme.name, scheme.summary);
            let _ = write!(text, "\n## `{name}://`\n\n{}{}.\n\n", summary[..1].to_uppercase(), &summary[1..]);
            let _ = writeln!(text, "Address: `{}`, for instance `{}`.\n", scheme.form, scheme.example);
            table(&mut text, &driver.settings(scheme.name));
        }
    }
    text
}

#[test]
fn the_page_of_the_configuration_says_what_the_drivers_say() {
    let (file, now) = (PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md"), document());
    if std::env::var_os(WRITE).is_some() {
        fs::write(&file, now).unwrap();
        return;
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(written == now, "docs/configuration.md is not what the drivers say; run: cargo xtask configuration");
}

#[tokio::test]
async fn every_default_is_allowed_and_the_documented_keys_are_those_that_are_read() {
    for scheme in lock::registry().schemes() {
        let registry = lock::registry();
        let settings = registry.driver(scheme.name).unwrap().settings(scheme.name);
        let url = format!("{}?no_such_key=17", scheme.example);
        let error = lock::Config::from_url(&url).unwrap().connect().await.unwrap_err();
        let lock::Error::Config { allowed, .. } = error else { panic!("{url}: {error}") };
        let (_, read) = allowed.split_once("these keys: ").expect("the keys that are read");
        let mut documented: Vec<_> = settings.iter().map(|setting| setting.key).collect();
        documented.extend(lock::Config::common_settings().iter().map(|setting| setting.key));
        documented.sort_unstable();
        assert_eq!(documented, read.split(", ").collect::<Vec<_>>(), "{}", scheme.name);
        for setting in settings.iter().filter(|setting| setting.default.is_some()) {
            let query = format!("{}={}", setting.key, setting.default.as_deref().unwrap().replace(' ', "%20"));
            let config = lock::Config::from_url(&format!("{}?{query}&no_such_key=17", scheme.example)).unwrap();
            let error = config.connect().await.unwrap_err().to_string();
            assert!(error.contains("no_such_key"), "{}: {query}: {error}", scheme.name);
        }
    }
}
