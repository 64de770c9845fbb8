//! The terminal's foreground, which moves to the command and back.

use std::io::{self, IsTerminal as _};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on standard input, whose foreground is handed to the command's process group and taken back. The
/// command's group is another than ours, so without the foreground it could not read from it, and Ctrl-C would not reach
/// it.
#[derive(Debug)]
pub(crate) struct Terminal;

impl Terminal {
    /// The terminal, if there is one.
    pub(crate) fn of_stdin() -> Option<Self> {
        io::stdin().is_terminal().then_some(Self)
    }

    /// Makes `group` the foreground, if we are: a background job does not take the terminal.
    pub(crate) fn give(&self, group: Pid) {
        if tcgetpgrp(io::stdin()) == Ok(getpgrp()) {
            let _ = tcsetpgrp(io::stdin(), group);
        }
    }

    /// Makes our own group the foreground again, if `group` still is: a script that called us reads on from its terminal.
    pub(crate) fn take_back(&self, group: Pid) {
        if tcgetpgrp(io::stdin()) == Ok(group) {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }
}
