//! Writers that wait: the server notes them, so that readers who come later wait for them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{
    Redis,
    attempt::{Tried, Wanted},
    lines::{Place, WaitingWriter},
    node::NodeError,
    scripts::{Intent, Noted, Writer, sharing},
};

/// The longest time for which the server keeps the note of a waiter that has died: until then no new reader comes in.
const KEPT: Duration = Duration::from_secs(10);

/// A note is renewed this often in its time, so that two renewals may fail.
const RENEWALS: u32 = 3;

/// How long a writer listens, before it has itself noted, if no refusal of its own has done that: in a hand-off from one
/// writer of a client to the next it is granted before.
const GRACE: Duration = Duration::from_millis(2);

fn kept(wanted: &Wanted<'_>) -> Duration {
    wanted.ttl.min(KEPT)
}

impl Redis {
    pub(crate) fn waiting_writer(&self, wanted: &Wanted<'_>) -> WaitingWriter {
        WaitingWriter::new(self.waiter_id(), wanted.arrived)
    }

    /// Tries once, as the first in line. A writer that is refused is noted by that very refusal; when it is granted, the
    /// note goes, and the next writer in line is noted in its place: not a moment passes in which a reader that came later
    /// would find none.
    pub(crate) async fn try_in_line(
        &self,
        wanted: &Wanted<'_>,
        place: &Place<'_>,
        stop: &CancellationToken,
    ) -> Result<Tried, NodeError> {
        let Some(own) = &place.writer else { return self.try_once(wanted, None, stop).await };
        let mut next = place.next_writer();
        let now = self.clock().now();
        let noted = own.noted(now, kept(wanted) / RENEWALS);
        let intent = Intent {
            writer: self.as_sent(own),
            kept: kept(wanted),
            noted,
            next: next.as_deref().map(|next| self.as_sent(next)),
        };
        // Before the sending, so that whoever leaves meanwhile takes its note back.
        let next_before = next.as_ref().and_then(|next| next.note(Some(now)));
        if noted != Noted::Surely {
            own.note(Some(now));
        }
        let tried = self.try_once(wanted, Some(&intent), stop).await;
        match &tried {
            Ok(Tried::Granted(granted)) => {
                if let Some(next) = &next {
                    next.confirm();
                }
                // Sent twice, the first request may have noted it and the second one not have known that.
                own.note(granted.resent.then_some(now));
                self.withdraw(wanted, place).await;
            }
            // It may have been granted before it was withdrawn, or nobody knows: then the next one is noted.
            // Safeguard: a writer noted by a grant that was undone knows of its note (Redis)
            Ok(Tried::Stopped) | Err(_) => {}
            Ok(answered) => {
                // No time at all: it was refused because it had been undone, and that notes nothing.
                if matches!(answered, Tried::Held(left) if *left != Some(Duration::ZERO)) {
                    own.confirm();
                }
                if let Some(next) = next.take() {
                    next.note(next_before);
                }
            }
        }
        // One that left meanwhile may have taken its note back before this request had it made.
        if let Some(next) = next.filter(|next| next.has_left()) {
            self.take_back(wanted, &next).await;
        }
        tried
    }

    /// Keeps the note of a writer that only listens, or that stands in line behind readers. Does not end.
    pub(crate) async fn stay_announced(&self, wanted: &Wanted<'_>, place: &Place<'_>) {
        let Some(own) = &place.writer else { return std::future::pending().await };
        let kept = kept(wanted);
        loop {
            // Behind another writer of this client there is no need: readers wait for that one.
            place.first_writer(own).await;
            let due = match own.noted_at() {
                Some(noted_at) => noted_at.saturating_add(kept / RENEWALS),
                None => self.clock().now().saturating_add(GRACE),
            };
            self.clock().sleep_until(due).await;
            let before = own.note(Some(self.clock().now()));
            let call = sharing::announce(&self.keys(&wanted.request.name), &self.as_sent(own), kept);
            if let Err(error) = self.servers().call(call).await {
                tracing::debug!(%error, "a writer that waits was not noted");
                own.note(before.or(Some(due)));
                self.clock().sleep(kept / (4 * RENEWALS)).await;
            } else {
                own.confirm();
            }
        }
    }

    /// Takes the note of this writer back, if there may be one. Without an answer the cleanup goes on.
    pub(crate) async fn withdraw(&self, wanted: &Wanted<'_>, place: &Place<'_>) {
        // First: a grant to the one before it, at this moment, has it noted anew.
        place.leave();
        if let Some(own) = place.writer.as_ref().filter(|own| own.note(None).is_some()) {
            self.take_back(wanted, own).await;
        }
    }

    async fn take_back(&self, wanted: &Wanted<'_>, own: &WaitingWriter) {
        let withdrawal = {
            let (servers, id, url) = (self.servers().clone(), own.id.clone(), self.url());
            let keys = self.keys(&wanted.request.name);
            move || {
                let (servers, call, url) = (servers.clone(), sharing::withdraw(&keys, &id), url.clone());
                async move { servers.call(call).await.map(drop).map_err(|error| error.into_error(&url)) }
            }
        };
        let limit = self.servers().config().response_timeout;
        if !matches!(self.clock().timeout(limit, withdrawal()).await, Some(Ok(()))) {
            let until = self.clock().now().saturating_add(kept(wanted));
            self.cleanup().clean("the note of a writer that waited", until, withdrawal);
        }
    }

    fn as_sent<'a>(&self, writer: &'a WaitingWriter) -> Writer<'a> {
        Writer { id: &writer.id, waited: self.clock().now().saturating_since(writer.arrived) }
    }
}
