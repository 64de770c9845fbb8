//! The command line's own face.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts, which show no markup")]

use std::{ffi::OsString, fmt, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, builder::BoolishValueParser};
use clap_complete::Shell;
use lock_core::Request;

use crate::{list::ListArguments, release::ReleaseArguments};

/// Hold a distributed lock while a command runs, and look at locks.
///
/// The backend is chosen by --url, else by the file of --config, else by LOCK_URL, else by the file of LOCK_CONFIG, else by
/// /etc/lock.toml. Without any of them it is local://, the locks of this user on this machine, which is said on standard error
/// unless with --quiet, or an error with --service-required.
#[derive(Debug, Parser)]
#[command(name = "lock", version, arg_required_else_help = true, after_help = STATUSES)]
pub(crate) struct Arguments {
    /// The lock service, as zk://HOST,HOST/PATH, redis://HOST, redlock://HOST,HOST,HOST or local:///DIRECTORY.
    /// Other users of this machine can read it here: give a password in LOCK_PASSWORD, in a file that `password_file=` names, or in
    /// LOCK_URL.
    #[arg(long, global = true, conflicts_with = "config")]
    pub(crate) url: Option<String>,

    /// A TOML file with a table [lock].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Fail where no lock service is named, instead of using the locks of this machine: for cron, where a variable is soon lost.
    #[arg(long, global = true, env = "LOCK_REQUIRE_SERVICE", value_parser = BoolishValueParser::new(), num_args = 0,
        default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(crate) service_required: bool,

    /// Say what happens; twice for everything. Without it, RUST_LOG is the filter of what is said, if it is set.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Say nothing but errors: not what is waited for, and not that no service is named.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: LockSubcommand,
}

const STATUSES: &str = "Exit status: that of the command (128+n when signal n ended it, 127 when it was not found, 126 when \
it could not be run); 75 the lock was not acquired in time, 69 the lock service is unavailable, 76 the lock was lost while \
the command ran, 77 it was lost and the command could not be ended, 64 wrong usage, 78 wrong configuration.";

/// The subcommands of `lock`, with their arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum LockSubcommand {
    Run(RunArguments),
    Status(StatusArguments),
    Watch(WatchArguments),
    List(ListArguments),
    Release(ReleaseArguments),
    Elect(ElectArguments),
    Doctor(DoctorArguments),
    /// Look after the nodes of a Redlock deployment.
    #[command(subcommand)]
    Redlock(RedlockSubcommand),
    /// Print the completions of a shell.
    ///
    /// A package puts them where the shell looks: `lock completions bash` into /usr/share/bash-completion/completions/lock, that
    /// of zsh into /usr/share/zsh/vendor-completions/_lock, that of fish into /usr/share/fish/vendor_completions.d/lock.fish.
    Completions {
        /// Whose.
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all subcommands into a directory.
    Man {
        /// A directory that is there, such as /usr/share/man/man1. Without it lock.1 goes to standard output.
        #[arg(value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
    /// What `lock run` starts beside its command, to end it should `lock run` be killed.
    #[command(hide = true)]
    Guardian {
        #[arg(long, value_parser = humantime::parse_duration)]
        kill_after: Duration,
    },
}

/// What to lock.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct NameArgument {
    /// What to lock: 1 to 512 bytes, any text.
    #[arg(value_name = "NAME")]
    positional: Option<String>,

    /// What to lock, where NAME begins with a dash, as --name=-x.
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    option: Option<String>,
}

impl AsRef<str> for NameArgument {
    fn as_ref(&self) -> &str {
        self.positional.as_deref().or(self.option.as_deref()).unwrap_or_default()
    }
}

/// As the name in quotes.
impl fmt::Debug for NameArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_ref(), f)
    }
}

/// Reads the text of --payload.
fn payload(text: &str) -> Result<String, String> {
    match text.len() {
        0..=Request::MAX_PAYLOAD => Ok(text.to_owned()),
        length => Err(format!("it has {length} bytes; allowed are at most {}", Request::MAX_PAYLOAD)),
    }
}

/// Run a command while holding a lock.
///
/// The command runs in a process group of its own, with LOCK_NAME, LOCK_TOKEN (the fencing token), LOCK_TOKEN_INT (the same
/// as one integer, for an integer column or the arithmetic of a shell; not set for an era above 921) and LOCK_URL in its
/// environment, the last without user and password; where these stand in a file, LOCK_CONFIG names it instead. LOCK_HELD has
/// what is held, so that a `lock run` of the same name within the command is refused instead of waiting for itself. Signals are
/// passed on to the group. When the lock is lost, a moment before its validity ends if the service cannot be reached, and when
/// `lock run` itself is killed or stopped for longer than that, the whole group gets SIGTERM, and what is left of it gets
/// SIGKILL after --kill-after, or when the validity ends, if that is sooner. A process that leaves the group is out of reach.
/// One that has become another user cannot be ended: the lock is held while it lives, for as long as it can be held, which is
/// said on standard error. What the command leaves running in the background when it ends by itself goes on, without the lock.
///
/// On a terminal the command's group is its foreground; in a pipeline, when it asks for that, so that a pager can have it.
/// `lock run` cannot be suspended (a stopped holder loses its lock, and who waits its place): a command that stops on Ctrl-Z is
/// continued.
///
/// After a second of waiting one line on standard error says what is waited for, and who holds it.
#[derive(Debug, Args)]
#[command(override_usage = "lock run [OPTIONS] <NAME> -- <COMMAND>...")]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) name: NameArgument,

    /// Wait for the lock for at most this long, for a service that cannot be reached, too; without it, for the lock for as long as it
    /// takes, and for the service for the `outage_timeout` of the configuration, 30s if that does not say otherwise.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait for the lock.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// How long the service keeps the lock should this machine die; where locks share a session (zk://), set
    /// `session_timeout` in the URL instead.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,

    /// Share the lock with others that run with --shared, and with nobody else: the read side of a read-write lock.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,

    /// Hold one of N permits of the semaphore of that name, which is a thing apart from the lock; all must name the same
    /// number. There is no LOCK_TOKEN or LOCK_TOKEN_INT then, since none could tell several holders apart in time.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<NonZeroU32>,

    /// Hold the lock for at most this long. The last --kill-after of that time, but at most half, is for the end of the command:
    /// it gets SIGTERM, and at the limit what is left of it gets SIGKILL. The lock is given back when all of it is gone.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Hold the lock for at least this long, counted from the grant: for jobs that are started on several hosts at the same time
    /// by clocks that differ, so that one of them runs the job and the others, with --no-wait, find the lock held. When the command
    /// has ended before, whatever its status, `lock run` goes on holding the lock until then; one that could not be run gives
    /// the lock back at once. So does a signal that asks to end, and the Ctrl-C that ends the command on a terminal. Should the lock
    /// be lost meanwhile, that is said, and the status is that of the command. It is `lock run` that holds it: should this machine
    /// or `lock run` die, the lock is free when its ttl has passed, with local:// at once.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) at_least: Option<Duration>,

    /// Who holds it, for those who look at the lock: at most 1024 bytes. Without it, the program of the command (not its
    /// arguments, which may hold secrets), the process, host and user, and the unit of systemd if there is one.
    #[arg(long, value_name = "TEXT", value_parser = payload)]
    pub(crate) payload: Option<String>,

    /// Ask for the lock although a `lock run` or `lock elect` that this one was started by holds the same name. That waits for
    /// itself for ever, unless the one above shares it and nobody who wants it alone comes between.
    #[arg(long)]
    pub(crate) nested: bool,

    /// When the lock is lost, how long after SIGTERM what is left of the command gets SIGKILL: at most. It is never later than
    /// the end of the lock's validity.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "10s")]
    pub(crate) kill_after: Duration,

    /// The exit status when the lock was not acquired in time.
    #[arg(long, value_name = "N", default_value_t = crate::failure::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,

    /// The command and its arguments.
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Show who holds a lock and who waits for it.
///
/// Who waits is shown where the service can tell.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Which lock.
    pub(crate) name: String,

    /// Print one JSON object: name, held (true or false), holders and queue. Of each contender: id, payload (text, or null
    /// with payload_base64 beside it when it is no UTF-8), mode (exclusive, read, permit), permits, token (as LOCK_TOKEN),
    /// token_int (as LOCK_TOKEN_INT), remaining_ms, since (RFC 3339, UTC); null where the service does not tell.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show a lock now and after each change, a line each, until interrupted.
///
/// While the service cannot be reached that is said on standard error, and watching goes on.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Which lock.
    pub(crate) name: String,

    /// Print one JSON object a line: time (RFC 3339, UTC) and the keys of `lock status --json`.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take part in an election, and run a command while leading; or see who leads.
///
/// The election is the lock of that name. The command runs as under `lock run`, with LOCK_NAME, LOCK_TOKEN and
/// LOCK_TOKEN_INT (the fencing token of the term) and LOCK_URL; it is ended when leadership is lost. Leadership ends with the command.
#[derive(Debug, Args)]
#[command(override_usage = "lock elect [OPTIONS] <NAME> -- <COMMAND>...\n       lock elect [OPTIONS] <NAME> --observe")]
pub(crate) struct ElectArguments {
    #[command(flatten)]
    pub(crate) name: NameArgument,

    /// Who this candidate is, for those who observe: at most 1024 bytes; without it as for `lock run`.
    #[arg(long, value_name = "TEXT", value_parser = payload, conflicts_with = "observe")]
    pub(crate) payload: Option<String>,

    /// Campaign although a `lock run` or `lock elect` that this one was started by holds the same name; as for `lock run`.
    #[arg(long, conflicts_with = "observe")]
    pub(crate) nested: bool,

    /// Campaign again when the command has ended or leadership was lost, until interrupted (on a terminal also by the Ctrl-C or the
    /// hang-up that ends the command) or what is left of the command cannot be ended. While the service is unavailable that is said on
    /// standard error, and tried again.
    #[arg(long, conflicts_with = "observe")]
    pub(crate) again: bool,

    /// How long the service keeps the leadership should this machine die; as for `lock run`.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, conflicts_with = "observe")]
    pub(crate) ttl: Option<Duration>,

    /// When leadership is lost, how long after SIGTERM what is left of the command gets SIGKILL: at most, as for `lock run`.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "10s")]
    pub(crate) kill_after: Duration,

    /// Do not take part: print the present leader, then each later one, in the order of their tokens, until interrupted.
    #[arg(long, conflicts_with = "command")]
    pub(crate) observe: bool,

    /// With --observe, print one JSON object a line: time, name, token (as LOCK_TOKEN), token_int (as LOCK_TOKEN_INT), id,
    /// payload (text, or null with payload_base64 beside it).
    #[arg(long, conflicts_with = "command")]
    pub(crate) json: bool,

    /// The command and its arguments.
    #[arg(last = true, required_unless_present = "observe", num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Look at a lock service, its settings and this host, and say what is wrong and what to do.
///
/// Every server is asked, and those that cannot be reached are named. Nothing stays on the servers of what is done to look at
/// them. docs/doctor.md lists what can be found. Exit status: 0 without problems, if perhaps with warnings; 1 with a problem;
/// 69 when no server could be reached; 78 for wrong configuration.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// The lock service, as for --url, which it goes before. Other users of this machine can read it here, too.
    #[arg(value_name = "URL", conflicts_with = "config")]
    pub(crate) service: Option<String>,

    /// Print one JSON object: url, reached (true or false), facts (each with subject, what and value) and findings, the worst
    /// first (each with severity: problem, warning or note; key, which does not change between versions; subject, the server or
    /// setting; what and cure, for people).
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `lock redlock`, which look after the nodes of a Redlock deployment.
#[derive(Debug, Subcommand)]
pub(crate) enum RedlockSubcommand {
    /// Make the servers of the URL a deployment, once and before its first use: its members and limits.
    ///
    /// Clients with other servers, another max_ttl or another restart_quarantine are refused. The deployment grants
    /// nothing for max_ttl, unless --no-holders says that it is new. Run again with the same settings it makes members again
    /// of servers that have lost their data, completes what was broken off, and changes nothing else.
    Init {
        /// Nobody has ever used these servers, so nobody holds a lock: they vote at once.
        #[arg(long)]
        no_holders: bool,

        /// Make them a new deployment whatever they were; clients with other settings lose their locks.
        #[arg(long)]
        reset: bool,
    },
    /// Show how each node is: whether it votes, and why it does not.
    ///
    /// Nothing is changed on the nodes. Exit status: 0 when a majority votes, 69 otherwise.
    Status {
        /// Print one JSON object: id (of the deployment, or null), majority (how many votes a grant takes), voting (how many
        /// nodes vote), majority_in_ms (after what time a majority votes if nothing else happens, or null) and nodes, each with
        /// address, state (votes, quarantined, restarted, uninitialized, stranger, same-server, unusable), quarantine_ms,
        /// answered_in_us and text, for people.
        #[arg(long)]
        json: bool,
    },
    /// Put another server in the place of a member, while locks are held and taken.
    ///
    /// The others have to answer; the one that goes need not. The new one gives no vote for max_ttl, and so long grants take
    /// a majority of the others. Clients that are connected go on with it by themselves. Run again with the same servers, it
    /// completes what was begun.
    Replace {
        /// The member that goes, as HOST or HOST:PORT.
        old: String,

        /// The server that comes, as HOST or HOST:PORT: one that no deployment uses.
        new: String,
    },
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_definition_has_no_contradiction() {
        Arguments::command().debug_assert();
    }

    fn word() -> impl Strategy<Value = String> {
        let words = Arguments::command();
        let mut known: Vec<String> = words.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        for command in words.get_subcommands() {
            known.extend(command.get_arguments().filter_map(|argument| Some(format!("--{}", argument.get_long()?))));
        }
        known.extend(
            ["--", "-v", "--url", "memory://", "1s", "99999999999999999999y", "-1", "0", ""].map(str::to_owned),
        );
        prop_oneof![3 => proptest::sample::select(known), 1 => "\\PC{0,6}"]
    }

    proptest! {
        #[test]
        fn no_command_line_makes_it_panic(words in proptest::collection::vec(word(), 0..8)) {
            let _ = Arguments::try_parse_from(std::iter::once("lock".to_owned()).chain(words));
        }
    }
}
