//! The terminal's foreground, which moves to the command and back.

use std::io::{self, IsTerminal as _};

use nix::{
    sys::signal::Signal,
    unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp},
};

use crate::group;

/// The terminal on standard input, whose foreground is handed to the command's process group and taken back. The
/// command's group is another than ours, so without the foreground it could not read from it, and Ctrl-C would not reach
/// it.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Standard output is another one: to a pager, say, which reads its keys from the terminal and is of our own group.
    is_shared: bool,
}

impl Terminal {
    /// The terminal, if there is one.
    pub(crate) fn of_stdin() -> Option<Self> {
        io::stdin().is_terminal().then(|| Self { is_shared: !io::stdout().is_terminal() })
    }

    /// Makes `group` the foreground, as [`Terminal::give`] does, unless others may need it as much: then the command gets it
    /// when it is stopped for the lack of it, and until then what the keys signal is passed on to it.
    pub(crate) fn give_unasked(&self, group: Pid) {
        if !self.is_shared {
            self.give(group);
        }
    }

    /// Makes `group` the foreground, if we are: a background job does not take the terminal. Returns whether `group` is that now.
    pub(crate) fn give(&self, group: Pid) -> bool {
        match tcgetpgrp(io::stdin()) {
            Ok(foreground) if foreground == getpgrp() => tcsetpgrp(io::stdin(), group).is_ok(),
            foreground => foreground == Ok(group),
        }
    }

    /// Whether `group` gets the signals of its keys, which go to the foreground alone, or got that of its end, after which it has none.
    pub(crate) fn signals(&self, group: Pid) -> bool {
        tcgetpgrp(io::stdin()).map_or(true, |foreground| foreground == group)
    }

    /// Makes our own group the foreground again, if `group` still is: a script that called us reads on from its terminal, and whoever
    /// was stopped for the lack of it meanwhile goes on.
    pub(crate) fn take_back(&self, group: Pid) {
        if tcgetpgrp(io::stdin()) == Ok(group) {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
            if self.is_shared {
                group::send(getpgrp(), Signal::SIGCONT);
            }
        }
    }
}
