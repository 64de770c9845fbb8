//! The four-letter words of a server: `srvr`, which servers answer unless their administrator forbids it, and `conf`, which they
//! answer only where he allows it. Both are asked outside of a session, so a server without a quorum answers, too.

use std::{io, time::Duration};

use lock_core::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::wire::{Security, Server};

/// How much of an answer is read.
const LONGEST: u64 = 64 * 1024;

/// What a server says of itself outside of a session, in answer to its four-letter words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// What is listening there; `None` where nobody is, or nobody answers.
    pub(super) listener: Option<Listener>,
    /// The version of the server.
    pub(super) version: Option<String>,
    /// The role of the server, such as `follower` or `read-only`.
    pub(super) mode: Option<String>,
    /// The `tickTime` of the server.
    pub(super) tick: Option<Duration>,
}

/// What answers on the port of a server: a ZooKeeper that serves, one that does not, or another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listener {
    /// A ZooKeeper server that serves clients, or that does not tell.
    Serving,
    /// A ZooKeeper server without a quorum.
    NotServing,
    /// Somebody else.
    Other,
}

/// Asks a server, within `limit`.
pub(super) async fn ask(security: &Security, server: &Server, limit: Duration, clock: Clock) -> Words {
    let one = |word: &'static str| one(security, server, word, limit, clock);
    let (status, configuration) = futures::join!(one("srvr"), one("conf"));
    status.map_or_else(Words::default, |status| read(&status, &configuration.unwrap_or_default()))
}

async fn one(
    security: &Security,
    server: &Server,
    word: &'static str,
    limit: Duration,
    clock: Clock,
) -> Option<String> {
    let asking = async {
        let mut stream = security.dial(server).await?;
        stream.write_all(word.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        // Whoever hangs up in the middle has said what there is.
        let _ = stream.take(LONGEST).read_to_end(&mut answer).await;
        Ok::<_, io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    clock.answer_timeout(limit, asking).await?.ok()
}

/// Reads the answers to `srvr` and to `conf`.
fn read(status: &str, configuration: &str) -> Words {
    let line = |text: &str, start: &str| text.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned);
    let listener = if status.contains("not currently serving requests") {
        Listener::NotServing
    } else if status.starts_with("Zookeeper version") || status.contains("not in the whitelist") {
        Listener::Serving
    } else {
        Listener::Other
    };
    let version = line(status, "Zookeeper version: ");
    let tick = line(configuration, "tickTime=").and_then(|millis| millis.trim().parse().ok());
    Words {
        listener: Some(listener),
        version: version.and_then(|version| version.split(['-', ',']).next().map(str::to_owned)),
        mode: line(status, "Mode: "),
        tick: tick.map(Duration::from_millis),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_told_by_the_answer() {
        let serving =
            read("Zookeeper version: 3.8.0--1, built on 2022\nMode: follower\nNode count: 5\n", "tickTime=100\n");
        assert_eq!((serving.version.as_deref(), serving.mode.as_deref()), (Some("3.8.0"), Some("follower")));
        assert_eq!((serving.listener, serving.tick), (Some(Listener::Serving), Some(Duration::from_millis(100))));
        for (answer, listener) in [
            ("This ZooKeeper instance is not currently serving requests\n", Listener::NotServing),
            ("srvr is not executed because it is not in the whitelist.\n", Listener::Serving),
            ("-ERR unknown command\r\n", Listener::Other),
            ("", Listener::Other),
        ] {
            assert_eq!(read(answer, "").listener, Some(listener), "{answer:?}");
        }
    }
}
