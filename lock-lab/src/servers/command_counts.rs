//! What a Redis server counts of the commands that it has run.

use std::{collections::BTreeMap, iter::Sum, ops::AddAssign};

/// The fields of `INFO commandstats`: the counts of each command since the server's start. A script's own commands are listed
/// beside `evalsha`, which brought them, and their time is part of its time, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandCounts(BTreeMap<String, CommandCount>);

/// What a server counts of one command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandCount {
    /// How often the server ran the command, by itself or in a script.
    pub calls: u64,
    /// For how many microseconds.
    pub micros: u64,
}

/// The commands that clients of locks send, and that no script of theirs calls.
const SENT: [&str; 10] =
    ["evalsha", "eval", "fcall", "script|load", "subscribe", "unsubscribe", "ping", "wait", "psubscribe", "ssubscribe"];

impl CommandCounts {
    pub(super) fn read(fields: &BTreeMap<String, String>) -> Self {
        let count = |(name, value): (&String, &String)| {
            let figure = |name: &str| {
                let field = value.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
                field.and_then(|figure| figure.parse().ok()).unwrap_or(0)
            };
            let command = name.strip_prefix("cmdstat_")?.to_owned();
            Some((command, CommandCount { calls: figure("calls"), micros: figure("usec") }))
        };
        Self(fields.iter().filter_map(count).collect())
    }

    /// The counts of one command, by its name in lower case, as `script|load`.
    #[must_use]
    pub fn of(&self, command: &str) -> CommandCount {
        self.0.get(command).copied().unwrap_or_default()
    }

    /// The counts of all commands together for which `is_counted` is true of their name.
    pub fn of_all(&self, mut is_counted: impl FnMut(&str) -> bool) -> CommandCount {
        self.0.iter().filter(|(command, _)| is_counted(command)).map(|(_, count)| *count).sum()
    }

    /// How many commands clients have sent. What scripts call counts not as sent, nor do the commands of this laboratory
    /// (`INFO`) and of connecting (`HELLO`, `CLIENT`).
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.of_all(|command| SENT.contains(&command)).calls
    }
}

impl AddAssign for CommandCount {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.micros += other.micros;
    }
}

impl Sum for CommandCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |mut sum, count| {
            sum += count;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_counts_once_and_not_with_what_it_calls() {
        let stats = [
            ("cmdstat_evalsha", "calls=7,usec=70,usec_per_call=10.00"),
            ("cmdstat_set", "calls=7,usec=7"),
            ("cmdstat_subscribe", "calls=2,usec=2"),
            ("cmdstat_info", "calls=9,usec=9"),
        ];
        let stats = stats.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let counts = CommandCounts::read(&stats);
        assert_eq!(counts.requests(), 9);
        assert_eq!(counts.of("evalsha"), CommandCount { calls: 7, micros: 70 });
        assert_eq!(counts.of_all(|command| command != "info"), CommandCount { calls: 16, micros: 79 });
    }
}
