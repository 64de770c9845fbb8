//! Scripts, and calls of them.

use std::sync::OnceLock;

use redis::Cmd;

/// A Lua script, of which there is one `static`.
///
/// A script that reads whatever may raise an error before it writes is all or nothing, whatever error comes back; see
/// [`NodeError`](super::NodeError).
#[derive(Debug)]
pub struct Script {
    prologue: &'static str,
    body: &'static str,
    loaded: OnceLock<Loaded>,
}

/// The text that the server runs, and its name there.
#[derive(Debug)]
struct Loaded {
    source: String,
    hash: String,
}

impl Script {
    /// The script with this source.
    #[must_use]
    pub const fn new(source: &'static str) -> Self {
        Self::with_prologue("", source)
    }

    /// The script whose source is `prologue` and then `body`: several scripts may begin with the same functions.
    #[must_use]
    pub const fn with_prologue(prologue: &'static str, body: &'static str) -> Self {
        Self { prologue, body, loaded: OnceLock::new() }
    }

    /// The hash by which the server knows it.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.loaded().hash
    }

    fn loaded(&self) -> &Loaded {
        self.loaded.get_or_init(|| {
            let source = format!("{}{}", self.prologue, self.body);
            let hash = redis::Script::new(&source).get_hash().to_owned();
            Loaded { source, hash }
        })
    }
}

/// One call of a script: its keys and arguments.
#[derive(Debug, Clone)]
pub struct ScriptCall {
    script: &'static Script,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
    /// It goes to a server that is about to have the slot of its keys.
    asking: bool,
}

impl ScriptCall {
    /// A call without keys and arguments.
    #[must_use]
    pub const fn new(script: &'static Script) -> Self {
        Self { script, keys: Vec::new(), args: Vec::new(), asking: false }
    }

    /// With another key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// With these keys, too.
    #[must_use]
    pub(crate) fn keys(mut self, keys: impl IntoIterator<Item = String>) -> Self {
        self.keys.extend(keys);
        self
    }

    /// With another argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<Vec<u8>>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// With another argument, a whole number.
    #[must_use]
    pub fn number(self, number: impl Into<u128>) -> Self {
        self.arg(number.into().to_string())
    }

    /// The first of its keys, which all are in one slot.
    pub(crate) fn first_key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }

    /// Has it run, or not, on a server that does not have the slot of its keys yet.
    pub(crate) const fn set_asking(&mut self, asking: bool) {
        self.asking = asking;
    }

    pub(crate) const fn is_asking(&self) -> bool {
        self.asking
    }

    pub(super) const fn script(&self) -> &'static Script {
        self.script
    }

    /// `EVALSHA`, or with the source itself `EVAL`, which also leaves the script on the server for later calls.
    pub(super) fn command(&self, with_source: bool) -> Cmd {
        let loaded = self.script.loaded();
        let (name, script) = if with_source { ("EVAL", &loaded.source) } else { ("EVALSHA", &loaded.hash) };
        let parts = self.keys.iter().map(String::len).chain(self.args.iter().map(Vec::len));
        // The name, the script, and the number of keys come before them.
        let (count, length) =
            (3 + self.keys.len() + self.args.len(), name.len() + script.len() + 4 + parts.sum::<usize>());
        let mut command = Cmd::with_capacity(count, length);
        command.arg(name).arg(script);
        command.arg(self.keys.len()).arg(&self.keys);
        for arg in &self.args {
            command.arg(arg.as_slice());
        }
        command
    }
}
