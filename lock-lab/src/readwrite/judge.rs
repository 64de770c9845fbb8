//! What a run of readers and writers was worth: judged from its record alone.

use lock_core::{BootInstant, FencingToken};

/// How a lock was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// With other readers.
    Reader,
    /// Alone.
    Writer,
}

/// One time that the lock was held.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    /// How.
    pub role: Role,
    /// Before it was asked for.
    pub requested: BootInstant,
    /// After it was granted.
    pub granted: BootInstant,
    /// Before it was given back, or when it was lost.
    pub ended: BootInstant,
    /// After the release was answered.
    pub released: BootInstant,
    /// Its fencing token: the order of the grants on the servers.
    pub token: FencingToken,
}

/// A try to read that was refused.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    /// Before it was asked for.
    pub asked: BootInstant,
    /// After it was answered.
    pub answered: BootInstant,
}

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Writers that held beside somebody else.
    pub overlaps: usize,
    /// The most readers that held at one time.
    pub readers_at_once: usize,
    /// Readers that came after a writer was seen waiting, and before it was granted.
    pub behind: usize,
    /// Those of them that were granted before that writer.
    pub overtakes: usize,
}

/// Judges a run.
#[must_use]
pub fn judge(holds: &[Hold], refusals: &[Refusal]) -> Verdict {
    let (behind, overtakes) = behind_writers(holds, refusals);
    Verdict { overlaps: overlaps(holds), readers_at_once: at_once(holds), behind, overtakes }
}

/// How many holders were there beside a writer.
fn overlaps(holds: &[Hold]) -> usize {
    let mut by_grant: Vec<&Hold> = holds.iter().filter(|hold| hold.granted < hold.ended).collect();
    by_grant.sort_by_key(|hold| hold.granted);
    // The latest ends of what was granted so far: of writers, and of anybody.
    let (mut writer_ends, mut any_ends) = (None, None);
    let mut overlaps = 0;
    for hold in by_grant {
        let against = if hold.role == Role::Writer { any_ends } else { writer_ends };
        overlaps += usize::from(against.is_some_and(|ends| hold.granted < ends));
        any_ends = any_ends.max(Some(hold.ended));
        if hold.role == Role::Writer {
            writer_ends = writer_ends.max(Some(hold.ended));
        }
    }
    overlaps
}

fn at_once(holds: &[Hold]) -> usize {
    let readers = || holds.iter().filter(|hold| hold.role == Role::Reader && hold.granted < hold.ended);
    // At the same instant an end comes before a grant.
    let mut events: Vec<_> =
        readers().map(|hold| (hold.granted, 1_isize)).chain(readers().map(|hold| (hold.ended, -1))).collect();
    events.sort_unstable();
    let running = events.iter().scan(0, |now, (_, step)| {
        *now += step;
        Some(*now)
    });
    running.max().unwrap_or(0).unsigned_abs()
}

/// Readers that came behind a writer that was seen waiting, and how many of them overtook it.
///
/// Nobody but the server knows when a writer's request has arrived. But a try to read is only refused because of a writer
/// that holds or waits: if a single writer was under way for as long as the refused try took, it had arrived by the time
/// of the refusal. A reader that asked later than that and has a lower fencing token than the writer was granted before
/// it.
fn behind_writers(holds: &[Hold], refusals: &[Refusal]) -> (usize, usize) {
    let writers: Vec<&Hold> = holds.iter().filter(|hold| hold.role == Role::Writer).collect();
    let readers: Vec<&Hold> = holds.iter().filter(|hold| hold.role == Role::Reader).collect();
    let (mut behind, mut overtakes) = (0, 0);
    for writer in &writers {
        let Some(seen_waiting) = refusals
            .iter()
            .filter(|refusal| refusal.answered < writer.granted && refusal.answered > writer.requested)
            .filter(|refusal| is_alone(writer, &writers, refusal))
            .map(|refusal| refusal.answered)
            .min()
        else {
            continue;
        };
        for reader in &readers {
            if reader.requested > seen_waiting && reader.requested < writer.granted {
                behind += 1;
                overtakes += usize::from(reader.token < writer.token);
            }
        }
    }
    (behind, overtakes)
}

/// Whether no other writer was under way at any moment of the refused try.
fn is_alone(writer: &Hold, writers: &[&Hold], refusal: &Refusal) -> bool {
    let others = writers.iter().filter(|other| other.token != writer.token);
    !others.into_iter().any(|other| other.requested <= refusal.answered && other.released >= refusal.asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    fn hold(role: Role, requested: u64, granted: u64, ended: u64, token: u64) -> Hold {
        Hold {
            role,
            requested: at(requested),
            granted: at(granted),
            ended: at(ended),
            released: at(ended + 1),
            token: FencingToken { era: 0, number: token },
        }
    }

    fn refused(asked: u64, answered: u64) -> Refusal {
        Refusal { asked: at(asked), answered: at(answered) }
    }

    #[test]
    fn readers_beside_each_other_are_counted_and_no_overlap() {
        let holds = [hold(Role::Reader, 0, 1, 10, 1), hold(Role::Reader, 0, 2, 9, 2), hold(Role::Reader, 8, 9, 12, 3)];
        let verdict = judge(&holds, &[]);
        assert_eq!((verdict.overlaps, verdict.readers_at_once), (0, 2));
    }

    #[test]
    fn a_writer_beside_anybody_is_an_overlap_whoever_came_first() {
        let (reader, writer) = (hold(Role::Reader, 0, 1, 10, 1), hold(Role::Writer, 0, 9, 20, 2));
        assert_eq!(judge(&[reader, writer], &[]).overlaps, 1);
        let late = hold(Role::Reader, 0, 19, 30, 3);
        assert_eq!(judge(&[reader, writer, late], &[]).overlaps, 2);
        let next = hold(Role::Writer, 0, 10, 20, 2);
        assert_eq!(judge(&[reader, next], &[]).overlaps, 0, "one after the other");
    }

    #[test]
    fn a_long_hold_is_not_forgotten_behind_a_short_one() {
        let holds = [hold(Role::Reader, 0, 1, 50, 1), hold(Role::Reader, 0, 2, 3, 2), hold(Role::Writer, 0, 10, 11, 3)];
        assert_eq!(judge(&holds, &[]).overlaps, 1);
    }

    #[test]
    fn a_reader_that_came_behind_a_waiting_writer_and_was_granted_before_it_is_found() {
        let writer = hold(Role::Writer, 10, 50, 60, 7);
        let patient = hold(Role::Reader, 20, 61, 70, 8);
        let pusher = hold(Role::Reader, 21, 25, 30, 6);
        let verdict = judge(&[writer, patient, pusher], &[refused(15, 18)]);
        assert_eq!((verdict.behind, verdict.overtakes), (2, 1));
    }

    #[test]
    fn a_reader_that_may_have_come_before_the_writer_is_not_blamed() {
        let writer = hold(Role::Writer, 10, 50, 60, 7);
        let early = hold(Role::Reader, 17, 25, 30, 6);
        assert_eq!(judge(&[writer, early], &[refused(15, 18)]).behind, 0);
    }

    #[test]
    fn a_refusal_that_another_writer_may_have_caused_proves_nothing() {
        let writer = hold(Role::Writer, 10, 50, 60, 7);
        let other = hold(Role::Writer, 0, 5, 15, 5);
        let reader = hold(Role::Reader, 20, 25, 30, 6);
        assert_eq!(judge(&[writer, other, reader], &[refused(14, 18)]).behind, 0);
        assert_eq!(judge(&[writer, other, reader], &[refused(17, 18)]).overtakes, 1);
    }
}
