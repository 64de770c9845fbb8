//! docs/configuration.md says what the drivers say of their settings.

use std::{fmt::Write as _, fs, path::PathBuf};

use lock_core::{Driver, Scheme, SettingDoc};
use lock_lab::servers::{Certificates, ClientCertificate};

/// Has the test write the document instead.
const WRITE: &str = "LOCK_WRITE_CONFIGURATION";

const HEAD: &str = "\
# Configuration

Where a program connects to is one URL, the same spelled out in a TOML file, or either of them named by the environment:
`LOCK_URL`, else the file of `LOCK_CONFIG`, else `/etc/lock.toml` if it is there. Settings are keys of the URL's query or of the
table `[lock]`; other tables of the file are the application's own, and an application that has its configuration in another form
reads the same table by `serde` (`lock::Config` is `Deserialize`), or puts it together by `lock::Config::builder`. An unknown key
or a value that is not allowed is an error that names the key, the value, and what is allowed.

A password stands in the URL, in the table, in the file that `password_file` names, or in `LOCK_PASSWORD`. The command
`lock` uses the locks of the machine where no service is named, and says so; with `--service-required`, or
`LOCK_REQUIRE_SERVICE=1`, that is an error, as it is when a variable is there whose name is nearly `LOCK_URL` or `LOCK_CONFIG`.

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

const WITH_TLS: &str = "
## With TLS

Each connection is encrypted, and each server verified, for its name and against the authorities of `ca_file`, or else those
of the system. Nothing turns that off. The files are read again at each connect, so certificates are renewed without a
restart. `zks://` verifies each server under the name by which it is reached, and has no `server_name`.

";

/// What a driver has with TLS beside what it has without.
fn settings_of_tls(driver: &dyn Driver, scheme: &Scheme) -> Vec<SettingDoc> {
    let without = driver.settings(scheme.name);
    let with = scheme.with_tls.map(|name| driver.settings(name)).unwrap_or_default();
    with.into_iter().filter(|setting| !without.contains(setting)).collect()
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    let mut tls = Vec::new();
    table(&mut text, &lock::Config::common_settings());
    for driver in lock::registry().drivers() {
        for scheme in driver.schemes() {
            let (name, summary) = (scheme.name, scheme.summary);
            let _ = write!(text, "\n## `{name}://`\n\n{}{}.\n\n", summary[..1].to_uppercase(), &summary[1..]);
            let _ = writeln!(text, "Address: `{}`, for instance `{}`.\n", scheme.form, scheme.example);
            if let Some(with_tls) = scheme.with_tls {
                let _ = writeln!(text, "With TLS: `{with_tls}://`, and the settings of [TLS](#with-tls).\n");
            }
            table(&mut text, &driver.settings(scheme.name));
            let more: Vec<_> =
                settings_of_tls(driver, scheme).into_iter().filter(|setting| !tls.contains(setting)).collect();
            tls.extend(more);
        }
    }
    text.push_str(WITH_TLS);
    table(&mut text, &tls);
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
    let registry = lock::registry();
    let with_tls = |scheme: &'static Scheme| Some((scheme.with_tls?, scheme));
    let each = registry.schemes().map(|scheme| (scheme.name, scheme)).chain(registry.schemes().filter_map(with_tls));
    for (name, scheme) in each {
        let settings = registry.driver(name).unwrap().settings(name);
        let mut example = format!("{}?no_such_key=17", scheme.example.replacen(scheme.name, name, 1));
        if name != scheme.name {
            // So that nothing depends on the authorities of this system.
            example += &format!("&{}", Certificates::shared().unwrap().settings(ClientCertificate::Good));
        }
        let url = example.clone();
        let error = lock::Config::from_url(&url).unwrap().connect().await.unwrap_err();
        let lock::Error::Config { allowed, .. } = error else { panic!("{url}: {error}") };
        let (_, read) = allowed.split_once("these keys: ").expect("the keys that are read");
        let mut documented: Vec<_> = settings.iter().map(|setting| setting.key).collect();
        documented.extend(lock::Config::common_settings().iter().map(|setting| setting.key));
        documented.sort_unstable();
        assert_eq!(documented, read.split(", ").collect::<Vec<_>>(), "{name}");
        for setting in settings.iter().filter(|setting| setting.default.is_some()) {
            let query = format!("{}={}", setting.key, setting.default.as_deref().unwrap().replace(' ', "%20"));
            let config = lock::Config::from_url(&format!("{example}&{query}")).unwrap();
            let error = config.connect().await.unwrap_err().to_string();
            assert!(error.contains("no_such_key"), "{name}: {query}: {error}");
        }
    }
}
