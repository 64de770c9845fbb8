//! What can be taken out: of the shipped code, where it asks [`lock_core::safeguard`] by the same name, or of the model of
//! the client library.

use crate::Safeguard;

/// Whether that safeguard is in place.
pub(super) fn has(name: &'static str) -> bool {
    lock_core::safeguard(name)
}

const fn safeguard(name: &'static str, about: &'static str) -> Safeguard {
    Safeguard { name, about, seeds: 200_000 }
}

/// All of them.
pub(super) const SAFEGUARDS: [Safeguard; 25] = [
    safeguard("margin", "Validity ends by T/100 and 2 ms earlier than the time-out, for clocks that differ."),
    safeguard(
        "tick-before",
        "A write proves only what was answered a tick before the leader was seen running: it hears of activity late.",
    ),
    safeguard(
        "answered-before",
        "What counts for a write was answered, not only sent, before: requests may wait for a paused leader together.",
    ),
    safeguard(
        "running-session",
        "Nothing is granted unless the session's validity is running, and for a while to come.",
    ),
    safeguard("own-session", "A node that is found by its unique id counts only if it belongs to the present session."),
    safeguard(
        "own-node-watch",
        "Who waits watches its own node beside the one ahead, and hears of its end before it is handed the lock.",
    ),
    safeguard(
        "only-writers-mark",
        "Only a writer's node hands the lock on when it changes: somebody's write to a reader's node says nothing.",
    ),
    safeguard("only-holders-mark", "Who gives up while it waits deletes its node without the mark."),
    safeguard("look-after-deletion", "When the node ahead is deleted without a mark the list is looked at again."),
    safeguard("predecessor", "Whoever has somebody in the way waits."),
    safeguard("writer-behind-readers", "A writer waits for the readers ahead of it, too."),
    safeguard("gate-tells", "Who gets a permit tells whoever stands behind, which is the first blocked one now."),
    safeguard(
        "gate-versions",
        "News of a permit that came between the look and the watch are noticed by the node's version.",
    ),
    safeguard("all-agree", "A permit is granted only when all ahead believe in the same number of permits."),
    safeguard(
        "unique-id",
        "After a create without an answer the node is looked for by its unique id before another is made.",
    ),
    safeguard(
        "write-before-search",
        "Before that search a write of the session is committed: a sync may be answered while the create still waits for its majority.",
    ),
    safeguard(
        "counter-end",
        "Whoever is given a number near the end of the counter withdraws: there several nodes are given one number.",
    ),
    safeguard(
        "waits-outside",
        "Who has withdrawn from such a directory enters no more until all have left it: else it is never empty.",
    ),
    safeguard("one-exchange", "A writer goes on as a reader by one transaction, so that its place is never empty."),
    safeguard(
        "lapsed-withdraws",
        "The node of a grant that has run out is removed although its program keeps the guard.",
    ),
    safeguard(
        "repeated-removal",
        "A removal without an answer is repeated until the node is gone or its session has ended.",
    ),
    safeguard(
        "seen-in-answers",
        "Watches are set anew from the newest answer, not from the newest news: a connection may break between two of a transaction.",
    ),
    safeguard("own-sole-node", "Where all want one node, only the own one is removed: others call theirs the same."),
    safeguard(
        "verified-timeout",
        "After a reconnect no deadline moves and nothing is granted until the servers have said that they keep to the time-out.",
    ),
    safeguard(
        "doubted-timeout",
        "When a connection was lost before that was said, all servers have to say it: a client keeps a time-out that was shortened.",
    ),
];
