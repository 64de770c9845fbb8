//! The commands that a user has to be allowed (docs/rights.md), each in a form that changes nothing.

use lock_core::LockName;
use redis::{Cmd, Value};

use crate::node::text;

/// Tries each command of its arguments in a protected call, and answers the error of each, or an empty string. In an argument
/// each word of the command ends with a byte 31.
const TRY: &str = "\
local answers = {}
for at = 1, #ARGV do
  local words = {}
  for word in string.gmatch(ARGV[at], '([^\\31]*)\\31') do
    words[#words + 1] = word
  end
  local answer = redis.pcall(unpack(words))
  answers[at] = type(answer) == 'table' and answer.err or ''
end
return answers";

/// What scripts do with keys of the name that nobody uses. `HSETNX` is missing: it has no form that changes nothing.
const IN_SCRIPTS: [&[&str]; 28] = [
    &["TIME"],
    &["EXISTS", "K"],
    &["TYPE", "K"],
    &["GET", "K"],
    &["MGET", "K"],
    &["SET", "K", "v", "XX", "PX", "1000"],
    &["SETRANGE", "K", "0", ""],
    &["DEL", "K"],
    &["PTTL", "K"],
    &["PEXPIRE", "K", "1000"],
    &["PEXPIREAT", "K", "1000"],
    &["PUBLISH", "C", ""],
    &["HGET", "K", "f"],
    &["HMGET", "K", "f"],
    // Refused for its number of words, after the rights were looked at.
    &["HSET", "K", "f", "v", "f"],
    &["HDEL", "K", "f"],
    &["HLEN", "K"],
    &["ZADD", "K", "XX", "1", "m"],
    &["ZCARD", "K"],
    &["ZCOUNT", "K", "0", "0"],
    &["ZPOPMIN", "K"],
    &["ZRANGE", "K", "0", "0"],
    &["ZRANGEBYSCORE", "K", "0", "0"],
    &["ZRANK", "K", "m"],
    &["ZREM", "K", "m"],
    &["ZREMRANGEBYSCORE", "K", "0", "0"],
    &["ZSCORE", "K", "m"],
    &["SCAN", "0", "COUNT", "1"],
];

/// What scripts do for the queue of Redis.
const QUEUE: &str = "time exists type get mget set setrange del pttl pexpire pexpireat publish hget hset hdel hlen zadd zcard \
                     zcount zrange zrangebyscore zrank zrem zscore scan";
/// What scripts do for `strategy=plain`.
const PLAIN: &str = "time type get mget set del pttl pexpire publish scan";
/// What scripts do for Redlock, beside `info` and `hsetnx`.
const REDLOCK: &str = "time exists type get mget set setrange del pttl pexpire pexpireat publish hget hmget hset hdel hlen \
                       zadd zcard zpopmin zrange zrangebyscore zrem zremrangebyscore zscore scan";

/// What locks do not need: without the first four those who wait ask again and again, without the last one nobody can list
/// locks.
const CONVENIENT: [&str; 5] = ["publish", "subscribe", "unsubscribe", "channels", "scan"];

/// What a user has to be allowed on a server, for one kind of lock.
#[derive(Debug, Clone)]
pub struct Rights {
    in_scripts: &'static str,
    /// Patterns of keys, as the documentation gives them, and a key that fits each of them.
    keys: Vec<(String, String)>,
    channels: Vec<String>,
    direct: Vec<Vec<&'static str>>,
    /// Which keys of the server are all this library's, as a pattern for `SCAN`; empty where nobody can tell.
    pub(super) own_keys: String,
    /// Whether scripts need `INFO`, which otherwise only tells what a server is.
    needs_info: bool,
}

/// Something that the user may not do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The command, in lower case; or which keys or channels.
    pub right: String,
    /// Whether nothing, or less than everything, works without it.
    pub is_needed: bool,
}

impl Rights {
    /// What the queue needs, on keys that begin with `prefix`.
    #[must_use]
    pub fn queue(prefix: &str) -> Self {
        let (pattern, key) = (format!("{{{prefix}:*"), format!("{{{prefix}:{}}}", name()));
        let channels = vec![format!("{key}:changed"), format!("{prefix}:grants:{}", name())];
        Self::new(QUEUE, vec![(pattern.clone(), key)], channels, pattern)
    }

    /// What `strategy=plain` needs.
    #[must_use]
    pub fn plain(prefix: &str) -> Self {
        let own = format!("lock-plain:token:={}", name());
        let key = if prefix.is_empty() { name() } else { format!("{prefix}:{}", name()) };
        let pattern = if prefix.is_empty() { "the names of the locks".to_owned() } else { format!("{prefix}:*") };
        let own_keys = if prefix.is_empty() { String::new() } else { pattern.clone() };
        Self::new(PLAIN, vec![(pattern, key), ("lock-plain:*".to_owned(), own.clone())], vec![own], own_keys)
    }

    /// What Redlock needs.
    #[must_use]
    pub fn redlock(prefix: &str) -> Self {
        let (pattern, key) = (format!("{{{prefix}:*"), format!("{{{prefix}:{}}}", name()));
        let own = ("redlock:*".to_owned(), format!("redlock:{}", name()));
        let channels = vec![format!("{key}:changed")];
        let rights = Self::new(REDLOCK, vec![(pattern.clone(), key), own], channels, pattern);
        Self { needs_info: true, ..rights }
    }

    fn new(in_scripts: &'static str, keys: Vec<(String, String)>, channels: Vec<String>, own_keys: String) -> Self {
        let direct = vec![vec!["PING"], vec!["EVALSHA", "0000000000000000000000000000000000000000", "0"]];
        Self { in_scripts, keys, channels, direct, own_keys, needs_info: false }
    }

    /// With what `min_replicas` needs.
    #[must_use]
    pub(crate) fn with_wait(mut self) -> Self {
        self.direct.push(vec!["WAIT", "0", "1"]);
        self
    }

    /// With what a cluster needs.
    #[must_use]
    pub(crate) fn with_cluster(mut self) -> Self {
        self.direct.extend([vec!["CLUSTER", "INFO"], vec!["CLUSTER", "SLOTS"], vec!["ASKING"]]);
        self
    }

    /// The commands that are tried, the script the last.
    pub(super) fn questions(&self) -> Vec<Cmd> {
        let command = |words: &Vec<&str>| {
            let mut command = Cmd::new();
            command.arg(words);
            command
        };
        let mut questions: Vec<Cmd> = self.direct.iter().map(command).collect();
        let mut script = redis::cmd("EVAL");
        script.arg(TRY).arg(0);
        for words in self.tries() {
            script.arg(words.iter().map(|word| format!("{word}\x1f")).collect::<String>());
        }
        questions.push(script);
        questions
    }

    /// What the script tries: each command on a key of the first pattern, then one command on a key of each other pattern.
    fn tries(&self) -> Vec<Vec<String>> {
        let needed = |words: &&&[&str]| self.in_scripts.split(' ').any(|name| name.eq_ignore_ascii_case(words[0]));
        let mut tries: Vec<Vec<String>> = Vec::new();
        let filled = |words: &[&str], key: &str| {
            let word = |word: &&str| match *word {
                "K" => key.to_owned(),
                "C" => self.channels[0].clone(),
                word => word.to_owned(),
            };
            words.iter().map(word).collect()
        };
        for (at, (_, key)) in self.keys.iter().enumerate() {
            let commands = IN_SCRIPTS.iter().filter(needed).filter(|words| at == 0 || words[0] == "GET");
            tries.extend(commands.map(|words| filled(words, key)));
        }
        tries
    }

    /// What the answers to [`Rights::questions`] say that the user may not do.
    pub(super) fn denied(&self, answers: &[Value]) -> Vec<Denied> {
        let mut denied: Vec<Denied> = Vec::new();
        let mut add = |right: String| {
            if !denied.iter().any(|known| known.right == right) {
                denied.push(Denied { is_needed: !CONVENIENT.contains(&right.as_str()), right });
            }
        };
        for (words, answer) in self.direct.iter().zip(answers) {
            if error(answer).is_some_and(|said| is_denial(&said)) {
                add(words
                    .iter()
                    .take(if words[0] == "CLUSTER" { 2 } else { 1 })
                    .copied()
                    .collect::<Vec<_>>()
                    .join("|")
                    .to_lowercase());
            }
        }
        let script = answers.get(self.direct.len());
        match script {
            Some(Value::Array(answers)) => {
                for (words, answer) in self.tries().iter().zip(answers) {
                    let said = text(answer).unwrap_or_default();
                    if !is_denial(said) {
                        continue;
                    }
                    let pattern = self.keys.iter().find(|(_, key)| words.contains(key));
                    match pattern {
                        Some((pattern, _)) if is_about_keys(said) => add(format!("~{pattern}")),
                        _ if is_about_channels(said) => add("channels".to_owned()),
                        _ => add(words[0].to_lowercase()),
                    }
                }
            }
            Some(refused) if error(refused).is_some_and(|said| is_denial(&said)) => add("eval".to_owned()),
            _ => {}
        }
        denied
    }

    /// Whether the library itself needs `INFO`.
    pub(super) const fn needs_info(&self) -> bool {
        self.needs_info
    }

    /// Commands that listen, which come last on a connection: after them it takes no others.
    pub(super) fn listening(&self) -> Vec<Cmd> {
        // One channel: there is an answer for each.
        let about = |name: &str| {
            let mut command = redis::cmd(name);
            command.arg(self.channels.last());
            command
        };
        ["SUBSCRIBE", "UNSUBSCRIBE"].map(about).into()
    }

    /// What the answers to [`Rights::listening`] say that the user may not do.
    pub(super) fn deaf(answers: &[Value]) -> Vec<Denied> {
        let names = ["subscribe", "unsubscribe"];
        let denied = names.iter().zip(answers).filter_map(|(name, answer)| {
            let said = error(answer).filter(|said| is_denial(said))?;
            let right = if is_about_channels(&said) { "channels" } else { name };
            Some(Denied { right: right.to_owned(), is_needed: false })
        });
        denied.collect()
    }
}

/// A lock name that nobody uses.
fn name() -> String {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let name = NAME.get_or_init(|| format!("lock-doctor-{}", uuid::Uuid::new_v4().simple()));
    debug_assert!(LockName::new(name.as_str()).is_ok());
    name.clone()
}

/// What an answer that is an error says.
pub(super) fn error(answer: &Value) -> Option<String> {
    let Value::ServerError(error) = answer else { return None };
    Some(format!("{} {}", error.code(), error.details().unwrap_or_default()))
}

/// Whether an error says that the user may not do something, as Redis 6.0 and later say it, from a script or not.
pub(super) fn is_denial(said: &str) -> bool {
    ["NOPERM", "The user executing the script can't", "ACL failure in script"].iter().any(|words| said.contains(words))
}

fn is_about_keys(said: &str) -> bool {
    said.contains("access") && said.contains("key")
}

fn is_about_channels(said: &str) -> bool {
    said.contains("channel")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Value {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// The commands of a section of the page, as `+command` names them.
    fn documented(section: &str) -> Vec<String> {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rights.md")).unwrap();
        let text = page.split("\n## ").find(|text| text.starts_with(&format!("{section}\n"))).unwrap();
        let rules = text.lines().filter(|line| line.starts_with("ACL SETUSER program"));
        let words = rules.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix('+'));
        let mut commands: Vec<String> = words.map(str::to_owned).collect();
        commands.sort();
        commands
    }

    #[test]
    fn every_documented_right_is_tried() {
        for (section, rights, more) in [
            ("Redis", Rights::queue("lock"), ""),
            ("Redis with strategy=plain", Rights::plain("lock"), ""),
            ("Redlock", Rights::redlock("lock"), "info hsetnx"),
            // Beside those of the queue.
            ("Redis Cluster", Rights { in_scripts: "", ..Rights::queue("lock").with_cluster() }, "queue"),
        ] {
            let direct = rights.direct.iter().map(|words| match words[0] {
                "CLUSTER" => words[..2].join("|").to_lowercase(),
                word => word.to_lowercase(),
            });
            let mut tried: Vec<String> = direct.chain(rights.in_scripts.split(' ').map(str::to_owned)).collect();
            tried.extend(["eval", "subscribe", "unsubscribe"].map(str::to_owned));
            tried.extend(more.split(' ').map(str::to_owned));
            tried.retain(|right| !right.is_empty() && right != "queue");
            if more == "queue" {
                tried.retain(|right| right.contains('|') || right == "asking");
            }
            tried.sort();
            assert_eq!(tried, documented(section), "{section}");
        }
    }

    #[test]
    fn every_right_of_a_script_has_a_form_that_changes_nothing() {
        for rights in [Rights::queue("lock"), Rights::plain("a"), Rights::plain(""), Rights::redlock("lock")] {
            let tried: Vec<String> = rights.tries().iter().map(|words| words[0].to_lowercase()).collect();
            for needed in rights.in_scripts.split(' ') {
                assert!(tried.contains(&needed.to_owned()), "{needed}");
            }
        }
    }

    #[test]
    fn what_is_denied_is_named_as_a_command_as_keys_or_as_channels() {
        let rights = Rights::queue("lock").with_cluster();
        let mut answers =
            vec![bulk("PONG"), said("NOSCRIPT No matching script."), bulk(""), said("NOPERM no"), bulk("")];
        let in_script = |words: &Vec<String>| match words[0].as_str() {
            "ZREM" => bulk("ERR ACL failure in script: User program has no permissions to run the 'zrem' command"),
            "PUBLISH" => bulk("ERR ACL failure in script: User program has no permissions to access the 'x' channel"),
            "GET" => {
                bulk("The user executing the script can't access at least one of the keys mentioned in the command")
            }
            "HSET" => bulk("ERR wrong number of arguments for 'hset' command"),
            _ => bulk(""),
        };
        answers.push(Value::Array(rights.tries().iter().map(in_script).collect()));
        let denied = rights.denied(&answers);
        let seen: Vec<_> = denied.iter().map(|denied| (denied.right.as_str(), denied.is_needed)).collect();
        assert_eq!(seen, [("cluster|slots", true), ("~{lock:*", true), ("channels", false), ("zrem", true)]);
        let deaf = Rights::deaf(&[said("NOPERM User program has no permissions to run the 'subscribe' command")]);
        assert_eq!((deaf[0].right.as_str(), deaf[0].is_needed), ("subscribe", false));
    }
}
