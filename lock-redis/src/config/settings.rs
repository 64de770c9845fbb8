//! Each setting, with its default and what is allowed.

use std::time::Duration;

use lock_core::{Password, Setting, SettingDoc};

use super::Strategy;
use crate::wire::network_settings;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);
const TEN_MS: Duration = Duration::from_millis(10);

/// Below the least ttl a renewal may not come round in time; above the longest a dead holder blocks for days.
pub(crate) const TTL: Setting<Duration> = Setting::duration(
    "ttl",
    Duration::from_secs(30),
    Duration::from_millis(100),
    DAY,
    "How long the server keeps a lock without a renewal, unless a request says otherwise.",
);

pub(super) const PREFIX: Setting<&str> = Setting::text(
    "prefix",
    Some("lock"),
    "1 to 64 of the characters a-z A-Z 0-9 . _ - /; with `strategy=plain` also none at all, and not `lock-plain`",
    "What the keys of all locks begin with.",
);

pub(super) const STRATEGY: Setting<Strategy> = Setting::choice(
    "strategy",
    &[("queue", Strategy::Queue), ("plain", Strategy::plain())],
    "How contenders take turns: with `queue` in line on the server, with `plain` by `SET NX PX` as clients of other libraries do, to share locks with those.",
);

/// With the strategy `plain`, which says what it is unless it is set. A queue refuses it.
pub(super) const LOOK_AGAIN: Setting<Duration> = Setting::duration(
    "look_again",
    Strategy::LOOK_AGAIN,
    TEN_MS,
    MINUTE,
    "Only with `strategy=plain`, 500ms there: after how long those who wait look by themselves, since other libraries tell nobody of a release.",
)
.without_default();

pub(super) const CONNECT_TIMEOUT: Setting<Duration> =
    Setting::duration("connect_timeout", Duration::from_secs(1), TEN_MS, MINUTE, "How long connecting may take.");

pub(super) const RESPONSE_TIMEOUT: Setting<Duration> =
    Setting::duration("response_timeout", Duration::from_millis(500), TEN_MS, MINUTE, "How long a request may take.");

pub(super) const MIN_REPLICAS: Setting<u32> = Setting::number(
    "min_replicas",
    0,
    0,
    100,
    "By how many replicas each grant and each renewal has to be acknowledged.",
);

pub(super) const REPLICA_TIMEOUT: Setting<Duration> = Setting::duration(
    "replica_timeout",
    Duration::from_millis(500),
    Duration::from_millis(1),
    MINUTE,
    "How long the replicas may take to acknowledge.",
);

pub(super) const ADDRESS_MAP: Setting<&str> = Setting::text(
    "address_map",
    None,
    "ANNOUNCED:PORT=REACHED:PORT, several of them with commas between",
    "Where servers are reached that announce themselves by addresses which this program cannot use.",
);

pub(super) const SENTINEL_USERNAME: Setting<&str> =
    Setting::text("sentinel_username", None, "a user of the sentinels", "As whom to sign in to the sentinels.");

pub(super) const SENTINEL_PASSWORD: Setting<&str> =
    Setting::text("sentinel_password", None, "that user's password", "The password for the sentinels.");

pub(super) const SENTINEL_PASSWORD_FILE: Setting<&str> = Setting::text(
    "sentinel_password_file",
    None,
    "a file with that password and nothing else, but for a line break at its end",
    "The file that holds the password for the sentinels, instead of `sentinel_password`.",
);

/// The settings of a URL of `scheme`.
pub(crate) fn of(scheme: &str) -> Vec<SettingDoc> {
    let mut all = vec![
        TTL.doc(),
        PREFIX.doc(),
        STRATEGY.doc(),
        LOOK_AGAIN.doc(),
        CONNECT_TIMEOUT.doc(),
        RESPONSE_TIMEOUT.doc(),
        MIN_REPLICAS.doc(),
        REPLICA_TIMEOUT.doc(),
        Password::FILE.doc(),
    ];
    if !matches!(scheme, "redis" | "rediss") {
        all.push(ADDRESS_MAP.doc());
    }
    if scheme.ends_with("+sentinel") {
        all.extend([SENTINEL_USERNAME.doc(), SENTINEL_PASSWORD.doc(), SENTINEL_PASSWORD_FILE.doc()]);
    }
    all.extend(network_settings(is_with_tls(scheme)));
    all
}

/// Whether a URL of that scheme asks for TLS.
pub(super) fn is_with_tls(scheme: &str) -> bool {
    scheme.starts_with("rediss")
}
