//! What a schedule is like: what the operators have chosen, how often what goes wrong, and what the schedule aims at.

use super::program::ContenderHabits;
use crate::{Chance, Time};

/// The settings of the simulated ensemble in one schedule: its tick and its limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnsembleSettings {
    pub(super) tick: Time,
    /// The longest of a session.
    pub(super) timeout: Time,
    /// For how long a follower and a leader do without each other.
    pub(super) sync_limit: Time,
}

/// The faults of one schedule: which of them happen, and how often.
#[derive(Debug)]
pub(super) struct FaultProfile {
    /// The mean time between two faults.
    pub(super) pause: Time,
    /// How many of a hundred commits a follower works through late.
    pub(super) lag: u64,
    /// Whether somebody who is no contender deletes and writes.
    pub(super) foreign: bool,
    /// Whether a server that comes back may have another limit.
    pub(super) limits: bool,
    /// Whether clients are killed.
    pub(super) kills: bool,
    /// Whether the servers are restarted one after another, as by an upgrade; and the next one.
    pub(super) rolling: Option<usize>,
    /// One of that many messages is slow.
    pub(super) slow: u64,
    /// One of that many pieces of news is the last on its connection.
    pub(super) breaks: u64,
    /// What the schedule aims at beside.
    pub(super) aim: ScheduleAim,
}

impl FaultProfile {
    pub(super) fn draw(chance: &mut Chance, tick: Time, aim: ScheduleAim) -> Self {
        Self {
            pause: chance.one_of(&[tick, 2 * tick, 5 * tick]),
            lag: chance.one_of(&[0, 10, 40]),
            foreign: chance.one_in(2),
            limits: chance.one_in(4),
            kills: chance.one_in(6),
            rolling: chance.one_in(6).then_some(0),
            slow: 40,
            breaks: 100,
            aim,
        }
    }
}

/// The rare situation that a schedule aims at, beside its random faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScheduleAim {
    /// Whatever chance brings.
    Nothing,
    /// Hosts are cut off the moment they are granted the lock, so that the servers hear nothing more of their sessions. The
    /// hosts' clocks are as slow, and the servers' as fast, as clocks may be.
    SilentHolders,
    /// The leader stops while requests wait for it, and another server is not heard any more from the moment in which the
    /// leader wakes; nor are, a little later, that server's clients.
    WakingLeader,
    /// A waiting host is cut off until its client takes the session for ended, while an election lets the session live on.
    OutlivingSession,
    /// Little happens, messages are slow, and connections break between two pieces of news: who misses news is not woken by
    /// anything else.
    MissedNews,
}

impl ScheduleAim {
    /// What the schedule of that seed aims at.
    pub(super) const fn of(seed: u64) -> Self {
        match seed % 16 {
            3 => Self::SilentHolders,
            7 => Self::WakingLeader,
            11 => Self::OutlivingSession,
            15 => Self::MissedNews,
            _ => Self::Nothing,
        }
    }

    /// How wrong the clock of a host or of a server is, in millionths, of what may be drawn.
    pub(super) const fn drift(self, drawn: i64, is_server: bool) -> i64 {
        match (self, is_server) {
            (Self::SilentHolders, true) => drawn.abs(),
            (Self::SilentHolders, false) => -drawn.abs(),
            _ => drawn,
        }
    }

    pub(super) fn change_settings(self, settings: &mut EnsembleSettings) {
        match self {
            // The longer a session, the further two clocks part in it.
            Self::SilentHolders => settings.timeout = settings.tick * 10,
            // In a shorter session there is no time for the requests that it takes; and the others wait for the leader.
            Self::WakingLeader => {
                (settings.timeout, settings.sync_limit) = (settings.timeout.max(settings.tick * 6), settings.tick * 5);
            }
            Self::OutlivingSession => settings.timeout = settings.tick * 4,
            Self::Nothing | Self::MissedNews => {}
        }
    }

    pub(super) fn change_faults(self, faults: &mut FaultProfile, settings: EnsembleSettings) {
        match self {
            Self::Nothing => {}
            Self::WakingLeader => faults.pause = settings.timeout * 4,
            _ => faults.pause = settings.timeout,
        }
        if self == Self::MissedNews {
            (faults.slow, faults.breaks) = (3, 8);
        }
    }

    pub(super) fn change_habits(self, habits: &mut ContenderHabits) {
        match self {
            Self::Nothing => return,
            // The grant follows the session, and lasts until that has ended.
            Self::SilentHolders => {
                habits.mix = (1, 9, 0);
                (habits.pause, habits.longest_hold) = (habits.tick / 16, habits.timeout * 8);
            }
            // Some hold all the time, and others come and go beside them.
            Self::WakingLeader => {
                habits.mix = (0, 1, 0);
                (habits.pause, habits.longest_hold) = (habits.tick * 4, habits.timeout * 8);
            }
            Self::OutlivingSession => habits.mix = (1, 0, 0),
            Self::MissedNews => {
                (habits.mix, habits.permits) = ((0, 0, 1), (2, 12, 3));
                habits.pause = habits.timeout * 2;
                habits.longest_hold = habits.timeout * 6;
            }
        }
        habits.is_herd = false;
        habits.long_holds = 2;
    }

    /// How many contenders a host has, at least and at most.
    pub(super) const fn contenders(self) -> (u64, u64) {
        if matches!(self, Self::WakingLeader) { (4, 4) } else { (1, 2) }
    }

    /// How long things go wrong, by the session's time-out: the least, and how much more at most.
    pub(super) const fn active(self, timeout: Time) -> (Time, Time) {
        let more = if matches!(self, Self::Nothing) { 0 } else { timeout * 2 };
        (timeout * 2 + more, timeout * 3 + more)
    }
}
