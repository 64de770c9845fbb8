//! Every grant of a schedule, and what may not be true of them.

use crate::Time;

/// A grant, as everybody can see it who knows the true time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) client: usize,
    pub(super) reads: bool,
    pub(super) token: u64,
    /// When its acquisition began, and when it was reported.
    began: Time,
    at: Time,
    /// Until when its holder takes it for valid.
    until: Time,
    /// It ended before that, or there is nobody left who holds it.
    is_over: bool,
}

/// What is reported of a grant.
#[derive(Debug, Clone, Copy)]
pub(super) struct New {
    pub(super) client: usize,
    pub(super) reads: bool,
    pub(super) token: u64,
    pub(super) began: Time,
}

/// All grants, in their order.
#[derive(Debug, Default)]
pub(super) struct Grants(Vec<Grant>);

impl Grants {
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Notes a grant that was reported at `at`. Returns its place, and what is wrong with its token (F): it is to be above
    /// those of the grants until `after` that exclude it.
    pub(super) fn add(&mut self, new: New, until: Time, at: Time, after: Time) -> (usize, Option<String>) {
        let New { client, reads, token, began } = new;
        let conflicts = |other: &&Grant| other.at <= after && !(reads && other.reads);
        let same = self.0.iter().find(|other| other.token == token);
        let above = self.0.iter().filter(conflicts).find(|other| other.token > token);
        let wrong = same.map(|_| format!("the token {token} was given twice")).or_else(|| {
            above.map(|other| format!("the token {token} comes after {} of an earlier grant", other.token))
        });
        self.0.push(Grant { client, reads, token, began, at, until, is_over: false });
        (self.0.len() - 1, wrong)
    }

    /// A grant that excludes this one, of an acquisition that began after it and won before `sent`: a lease that lasts beyond that by a request
    /// which was sent then was somebody else's in between (L).
    pub(super) fn in_between(&self, place: usize, sent: Time) -> Option<Grant> {
        let grant = self.0[place];
        let later = self.0.get(place + 1..).unwrap_or_default();
        let in_between = |other: &&Grant| other.began >= grant.at && other.at <= sent;
        later.iter().filter(in_between).find(|other| !(grant.reads && other.reads)).copied()
    }

    /// It is valid until then. False when that is no gain.
    pub(super) fn renewed(&mut self, place: usize, until: Time) -> bool {
        let grant = &mut self.0[place];
        let gains = until > grant.until;
        grant.until = grant.until.max(until);
        gains
    }

    pub(super) fn ended(&mut self, place: usize) {
        self.0[place].is_over = true;
    }

    pub(super) fn became_reader(&mut self, place: usize) {
        self.0[place].reads = true;
    }

    /// Whoever died holds nothing.
    pub(super) fn died(&mut self, client: usize, _now: Time) {
        for grant in self.0.iter_mut().filter(|grant| grant.client == client) {
            grant.is_over = true;
        }
    }

    /// Another one whose holder takes it for valid, too, and which excludes this one (M).
    pub(super) fn conflicting(&self, place: usize, now: Time) -> Option<(Grant, Grant)> {
        let grant = self.0[place];
        let holds = |other: &Grant| !other.is_over && other.until > now;
        if !holds(&grant) {
            return None;
        }
        let others = self.0.iter().enumerate().filter(|(other, _)| *other != place);
        let mut conflicting = others.filter(|(_, other)| holds(other) && !(grant.reads && other.reads));
        conflicting.next().map(|(_, other)| (grant, *other))
    }
}
