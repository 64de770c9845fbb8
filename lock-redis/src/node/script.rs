//! Scripts, and calls of them.

use std::{iter, str, sync::OnceLock};

use redis::Cmd;

/// A Lua script, of which there is one `static`.
///
/// A script that reads whatever may raise an error before it writes is all or nothing, whatever error comes back; see
/// [`NodeError`](super::NodeError).
#[derive(Debug)]
pub struct Script {
    source: &'static str,
    sent: OnceLock<SentScript>,
}

/// A script as servers get it, and the hash by which they know it.
#[derive(Debug)]
struct SentScript {
    text: String,
    hash: String,
}

impl Script {
    /// The script with this source.
    #[must_use]
    pub const fn new(source: &'static str) -> Self {
        Self { source, sent: OnceLock::new() }
    }

    /// The hash by which the server knows it.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.sent().hash
    }

    /// Without the lines of comments, which are half of it: each connection to a server sends the text once.
    fn sent(&self) -> &SentScript {
        self.sent.get_or_init(|| {
            let lines = self.source.lines().filter(|line| !line.trim_start().starts_with("--"));
            let text = lines.flat_map(|line| [line, "\n"]).collect::<String>();
            let hash = redis::Script::new(&text).get_hash().to_owned();
            SentScript { text, hash }
        })
    }
}

/// One call of a script: its keys and arguments.
#[derive(Debug, Clone)]
pub struct ScriptCall {
    script: &'static Script,
    /// The keys and then the arguments, one behind the other.
    words: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// How many of them are keys.
    key_count: usize,
    /// It goes to a server that is about to have the slot of its keys.
    asking: bool,
    /// What it publishes goes out before its answer.
    publishes_first: bool,
}

impl ScriptCall {
    /// A call without keys and arguments.
    #[must_use]
    pub const fn new(script: &'static Script) -> Self {
        Self { script, words: Vec::new(), ends: Vec::new(), key_count: 0, asking: false, publishes_first: false }
    }

    /// With another key.
    ///
    /// # Panics
    /// After the first argument, where assertions are on for debugging.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        debug_assert_eq!(self.key_count, self.ends.len(), "keys come before arguments");
        self.key_count += 1;
        self.arg(key.as_ref())
    }

    /// With these keys, too.
    #[must_use]
    pub(crate) fn with_keys(self, keys: impl IntoIterator<Item = String>) -> Self {
        keys.into_iter().fold(self, Self::key)
    }

    /// With another argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.words.extend_from_slice(arg.as_ref());
        self.ends.push(self.words.len());
        self
    }

    /// With another argument, a whole number.
    #[must_use]
    pub fn number(self, number: impl Into<u128>) -> Self {
        self.arg(number.into().to_string())
    }

    /// The keys and the arguments.
    fn words(&self) -> impl Iterator<Item = &[u8]> {
        let starts = iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.words[start..*end])
    }

    /// The keys that the server is told of, all of which are in one slot.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.words().take(self.key_count).map(|key| str::from_utf8(key).unwrap_or_default())
    }

    /// The first of its keys.
    pub(crate) fn first_key(&self) -> &str {
        self.keys().next().unwrap_or_default()
    }

    /// Has it run, or not, on a server that does not have the slot of its keys yet.
    pub(crate) const fn set_asking(&mut self, asking: bool) {
        self.asking = asking;
    }

    pub(crate) const fn is_asking(&self) -> bool {
        self.asking
    }

    /// Has what it publishes sent out before its answer, for one more command.
    ///
    /// Redis writes to those whom it owes an answer in the reverse of the order in which it began to owe them one
    /// (`putClientInPendingWriteQueue` in its `networking.c`). A script's caller comes last, and so is written to first, and
    /// may take the processor from the server before anybody else is. Who is owed a `PONG` already is written to last.
    #[must_use]
    pub(crate) const fn publishing_first(mut self, publishes_first: bool) -> Self {
        self.publishes_first = publishes_first;
        self
    }

    pub(super) const fn publishes_first(&self) -> bool {
        self.publishes_first
    }

    pub(super) const fn script(&self) -> &'static Script {
        self.script
    }

    /// `EVALSHA`, or with the source itself `EVAL`, which also leaves the script on the server for later calls.
    pub(super) fn command(&self, with_source: bool) -> Cmd {
        let SentScript { text, hash } = self.script.sent();
        let (name, script) = if with_source { ("EVAL", text) } else { ("EVALSHA", hash) };
        let mut command = Cmd::with_capacity(self.ends.len() + 3, self.words.len() + script.len() + 16);
        command.arg(name).arg(script).arg(self.key_count);
        for word in self.words() {
            command.arg(word);
        }
        command
    }
}
