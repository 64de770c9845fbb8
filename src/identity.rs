//! Who holds a lock, for people who look at it.

use std::{ffi::OsStr, fs, path::Path};

use rustix::{process::geteuid, system::uname};

/// The longest part of the payload, in bytes, so that all of them together stay below the limit of a payload.
const LONGEST: usize = 160;

/// `program=... pid=... host=... user=...`, for people: nothing depends on it. With `command=...` where the program runs that
/// one under the lock, and `unit=...` where systemd has started it.
///
/// Of a command only the name of the program is shown: arguments may hold secrets, and everybody who may use the lock service
/// can read this.
pub(crate) fn payload(command: Option<&OsStr>) -> Vec<u8> {
    let program = std::env::args_os().next().unwrap_or_default();
    let command = command.map(name).unwrap_or_default();
    let uname = uname();
    let user = user(geteuid().as_raw(), &fs::read_to_string("/etc/passwd").unwrap_or_default());
    let unit = fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| unit(&groups));
    let parts = [
        ("program", name(&program)),
        ("command", command),
        ("pid", std::process::id().to_string()),
        ("host", uname.nodename().to_string_lossy().into_owned()),
        ("user", user),
        ("unit", unit.unwrap_or_default()),
    ];
    text(&parts).into_bytes()
}

fn text(parts: &[(&str, String)]) -> String {
    let there = parts.iter().filter(|(_, value)| !value.is_empty());
    there.map(|(key, value)| format!("{key}={}", short(value))).collect::<Vec<_>>().join(" ")
}

/// A program's name, without its directory.
fn name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The name of a user in a file like `/etc/passwd`, else its number. A directory service on the network is not asked, which
/// may take its time.
fn user(id: u32, passwd: &str) -> String {
    let number = id.to_string();
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id == number).then_some(name)
    });
    named.unwrap_or(&number).to_owned()
}

/// The service of systemd to which a process belongs, by its control groups; see `cgroups(7)`. What runs in a session of a
/// user belongs to none.
fn unit(groups: &str) -> Option<String> {
    let of_systemd = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        matches!(controllers, "" | "name=systemd").then(|| path.to_owned())
    };
    groups.lines().filter_map(of_systemd).find_map(|path| {
        let is_unit = |part: &&str| {
            Path::new(part).extension().is_some_and(|kind| kind == "service" || kind == "scope" || kind == "slice")
        };
        path.rsplit('/').find(is_unit).filter(|unit| unit.ends_with(".service")).map(str::to_owned)
    })
}

fn short(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
mod tests {
    use lock_core::Request;

    use super::*;

    #[test]
    fn the_payload_names_this_process_its_user_and_its_host() {
        let payload = String::from_utf8(payload(None)).unwrap();
        assert!(payload.contains(&format!("pid={} host=", std::process::id())), "{payload}");
        assert!(payload.contains(" user=") && !payload.contains("command="), "{payload}");
    }

    #[test]
    fn of_a_command_the_program_is_shown() {
        let payload = String::from_utf8(payload(Some(OsStr::new("/opt/jobs/nightly.sh")))).unwrap();
        assert!(payload.contains(" command=nightly.sh pid="), "{payload}");
    }

    #[test]
    fn long_parts_do_not_make_the_payload_too_long() {
        let long = || "ü".repeat(5000);
        let parts = ["program", "command", "pid", "host", "user", "unit"].map(|key| (key, long()));
        assert!(text(&parts).len() <= Request::MAX_PAYLOAD);
    }

    #[test]
    fn a_user_has_its_name_where_the_machine_knows_it() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nanna:x:1000:1000::/home/anna:/bin/sh\n";
        assert_eq!((user(0, passwd), user(1000, passwd), user(7, passwd)), ("root".into(), "anna".into(), "7".into()));
    }

    #[test]
    fn the_unit_is_the_service_that_runs_it() {
        let of = |groups: &str| unit(groups);
        assert_eq!(of("0::/system.slice/nightly.service\n").as_deref(), Some("nightly.service"));
        assert_eq!(of("0::/system.slice/build.service/workers\n").as_deref(), Some("build.service"));
        let older = "5:memory:/x.service\n1:name=systemd:/system.slice/cron.service\n0::/\n";
        assert_eq!(of(older).as_deref(), Some("cron.service"));
        assert_eq!(of("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte.scope\n"), None);
        assert_eq!(of("0::/user.slice/user-1000.slice/session-3.scope\n"), None);
        assert_eq!(of("0::/\n"), None);
        assert_eq!(of("nonsense"), None);
    }
}
