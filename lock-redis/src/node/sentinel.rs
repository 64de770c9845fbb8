//! Sentinels: they know which server is the primary of a service, and say when that changes.

use std::{fmt, sync::Arc, time::Duration};

use futures::{
    StreamExt, TryStreamExt,
    future::AbortHandle,
    stream::{self, BoxStream, FuturesUnordered},
};
use lock_core::{Clock, Context};
use redis::Value;

use super::{
    Address, AddressMap, Node, NodeConfig, NodeError, PrimaryDiscovery,
    election::{NamedPrimary, PrimaryElection},
    route::{accepted, ask_once},
};

/// The channel on which sentinels say that a service has another primary.
const SWITCHED: &str = "+switch-master";

/// How long the others are waited for when more than half of the sentinels name the same: one of them may know of a later
/// primary.
const AGREED: Duration = Duration::from_millis(100);

/// The sentinels of one service, which are asked for its primary.
///
/// All are asked at once. A sentinel that was cut off goes on naming the primary that it knew, and that one may go on saying
/// so itself: what is named under the highest epoch counts, by the most of them, and at least half of them have to answer.
#[derive(Clone)]
pub(crate) struct Sentinels {
    shared: Arc<SentinelsState>,
}

/// The state that the clones of a [`Sentinels`] and the listening task share.
struct SentinelsState {
    service: String,
    sentinels: Vec<NodeConfig>,
    addresses: AddressMap,
    context: Context,
}

/// Handle to the task that listens for the sentinels' announcements of a new primary; dropping it ends the task.
#[derive(Debug)]
pub(crate) struct SentinelListener(AbortHandle);

impl Sentinels {
    /// Those who know `service`; what they say of addresses is read by `addresses`.
    pub(crate) fn new(service: String, sentinels: Vec<NodeConfig>, addresses: AddressMap, context: Context) -> Self {
        Self { shared: Arc::new(SentinelsState { service, sentinels, addresses, context }) }
    }

    /// Has `node` look for its primary as soon as a sentinel says that there is another one. It would find out by itself,
    /// later: nothing relies on this.
    pub(crate) fn tell(&self, node: &Node) -> SentinelListener {
        SentinelListener(self.shared.context.spawn(listen(Arc::clone(&self.shared), node.clone())).abort_handle())
    }
}

impl PrimaryDiscovery for Sentinels {
    fn candidates(&self) -> BoxStream<'static, Result<Address, NodeError>> {
        let shared = Arc::clone(&self.shared);
        let elected = stream::once(async move { shared.elect().await });
        elected.map(|elected| elected.map(|ranking| stream::iter(ranking.into_iter().map(Ok)))).try_flatten().boxed()
    }

    /// Several are named only where sentinels contradict each other: the one that most name is asked first.
    fn is_in_order(&self) -> bool {
        true
    }

    fn addresses(&self) -> &AddressMap {
        &self.shared.addresses
    }
}

impl SentinelsState {
    /// Asks all sentinels which server is the primary: those that may be it, the likeliest first.
    async fn elect(&self) -> Result<Vec<Address>, NodeError> {
        let sentinels = &self.sentinels;
        let limit = sentinels.first().map_or(AGREED, |first| first.connect_timeout) / 2;
        let asked = sentinels.iter().map(|sentinel| self.ask(sentinel)).collect();
        let (election, failure) = hear_all(self.context.clock(), limit, asked).await;
        let (answers, needed) = (election.answers(), election.needed());
        election.ranking().ok_or_else(|| match failure {
            Some(failure) if answers == 0 => failure,
            _ => NodeError::too_few_sentinels(&self.service, answers, sentinels.len(), needed),
        })
    }

    async fn ask(&self, sentinel: &NodeConfig) -> Result<NamedPrimary, NodeError> {
        let question = |what: &str| {
            let mut question = redis::cmd("SENTINEL");
            question.arg(what).arg(&self.service);
            question
        };
        // The first is right a moment earlier when it switches; the second one tells the epoch, to whom it may.
        let questions = ["GET-MASTER-ADDR-BY-NAME", "MASTER"].map(question);
        let at = Address::new(&sentinel.host, sentinel.port);
        let answers = ask_once(sentinel, &at, &questions).await.map_err(NodeError::not_connected)?;
        let [named, master] = answers.as_slice() else {
            return Err(NodeError::nonsense(&Value::Array(answers)).not_applied());
        };
        match accepted(named.clone()).map_err(NodeError::not_connected)? {
            Value::Nil => Err(NodeError::unknown_service(&self.service)),
            named => {
                let address = address(&named).ok_or_else(|| NodeError::nonsense(&named).not_applied())?;
                Ok(NamedPrimary { address, epoch: epoch(master) })
            }
        }
    }
}

/// Takes down the answers of all sentinels. Waits for those that do not answer only as long as the others have not agreed. With
/// it goes the error to report where none of them names a primary.
async fn hear_all<F>(
    clock: Clock,
    limit: Duration,
    mut asked: FuturesUnordered<F>,
) -> (PrimaryElection, Option<NodeError>)
where
    F: Future<Output = Result<NamedPrimary, NodeError>>,
{
    let (mut election, mut failure) = (PrimaryElection::among(asked.len()), None);
    let agreement = async { while !election.is_agreed() && hear(asked.next().await, &mut election, &mut failure) {} };
    // Safeguard: Sentinels that answer in a standstill are heard (Redis)
    clock.answer_timeout(limit, agreement).await;
    if election.is_agreed() {
        let others = async { while hear(asked.next().await, &mut election, &mut failure) {} };
        // Safeguard: a Sentinel that knows of a later primary is heard after a standstill (Redis)
        clock.answer_timeout(AGREED.min(limit / 2), others).await;
    }
    (election, failure)
}

/// Takes down one answer of the sentinels; `false` when all of them have answered.
fn hear(
    answer: Option<Result<NamedPrimary, NodeError>>,
    election: &mut PrimaryElection,
    failure: &mut Option<NodeError>,
) -> bool {
    match answer {
        Some(Ok(named)) => election.answered(named),
        // One that waiting may help is the better one to report.
        Some(Err(error)) if failure.is_none() || error.is_temporary() => *failure = Some(error),
        Some(Err(_)) => {}
        None => return false,
    }
    true
}

/// Reads the epoch in what a sentinel says of a primary: names and values in turn.
fn epoch(answer: &Value) -> Option<u64> {
    let Value::Array(parts) = answer else { return None };
    let said = parts.chunks_exact(2).find(|pair| text(&pair[0]) == Some("config-epoch"))?;
    text(&said[1])?.parse().ok()
}

fn text(value: &Value) -> Option<&str> {
    let Value::BulkString(bytes) = value else { return None };
    std::str::from_utf8(bytes).ok()
}

/// Reads a host and a port.
pub(crate) fn address(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    let [host, port] = parts.as_slice() else { return None };
    Some(Address::new(text(host)?, text(port)?.parse().ok()?))
}

/// Reads `<service> <old host> <old port> <new host> <new port>`.
fn switched(service: &str, message: &[u8]) -> Option<Address> {
    let mut parts = std::str::from_utf8(message).ok()?.split(' ');
    if parts.next() != Some(service) {
        return None;
    }
    let (host, port) = (parts.nth(2)?, parts.next()?);
    Some(Address::new(host, port.parse().ok()?))
}

/// Listens to one sentinel, and to the next one when nothing works on it.
async fn listen(shared: Arc<SentinelsState>, node: Node) {
    for sentinel in shared.sentinels.iter().cycle() {
        let (told, service) = (node.clone(), shared.service.clone());
        let listener = move |message: &[u8]| {
            if let Some(primary) = switched(&service, message) {
                tracing::debug!(service, %primary, "the sentinels have switched to another primary");
                told.heard(&primary);
            }
        };
        let sentinel = Node::new(sentinel.clone(), shared.context.clone());
        let _heard = sentinel.subscribe_each(SWITCHED, Arc::new(listener));
        sentinel.out().await;
        sentinel.close();
    }
}

impl SentinelListener {
    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for SentinelListener {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SentinelsState { service, sentinels, .. } = &*self.shared;
        f.debug_struct("Sentinels").field("service", service).field("sentinels", sentinels).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::{FutureExt, future, poll};
    use tokio::sync::oneshot;

    use super::*;

    /// How long sentinels that have not agreed are waited for.
    const LIMIT: Duration = Duration::from_secs(10);

    proptest::proptest! {
        #[test]
        fn whatever_a_sentinel_publishes_is_an_address_of_this_service_or_nothing(message in "(mymaster )?(\\PC{0,6} ){0,5}[0-9]{0,7}") {
            if switched("mymaster", message.as_bytes()).is_some() {
                proptest::prop_assert!(message.starts_with("mymaster "));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_knows_of_a_later_primary_is_heard_after_a_standstill() {
        let naming = |port, epoch| NamedPrimary { address: Address::new("h", port), epoch: Some(epoch) };
        let (answers, asked): (Vec<_>, Vec<_>) = [(); 3].map(|()| oneshot::channel()).into_iter().unzip();
        let asked = asked.into_iter().map(|answer| async move { Ok(answer.await.expect("it is sent")) }).collect();
        let mut hearing = pin!(hear_all(Clock::runtime(), LIMIT, asked));
        let mut answers = answers.into_iter();
        // Two are cut off and agree on the primary that they knew.
        for answer in answers.by_ref().take(2) {
            answer.send(naming(1, 1)).unwrap();
        }
        assert!(poll!(&mut hearing).is_pending(), "the third is waited for");
        tokio::time::advance(LIMIT).await;
        assert!(poll!(&mut hearing).is_pending(), "its answer may have arrived in the standstill");
        answers.next().unwrap().send(naming(2, 2)).unwrap();
        let (election, failure) = hearing.await;
        assert!(failure.is_none(), "{failure:?}");
        assert_eq!(election.ranking(), Some(vec![Address::new("h", 2)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_does_not_answer_is_waited_for_only_a_moment_once_the_others_have_agreed() {
        let named = || Ok(NamedPrimary { address: Address::new("h", 1), epoch: Some(1) });
        let asked = [future::ready(named()).boxed(), future::ready(named()).boxed(), future::pending().boxed()];
        let begin = Clock::runtime().now();
        let (election, _) = hear_all(Clock::runtime(), LIMIT, asked.into_iter().collect()).await;
        assert_eq!(election.ranking(), Some(vec![Address::new("h", 1)]));
        let waited = Clock::runtime().now().saturating_since(begin);
        assert!((AGREED..2 * AGREED).contains(&waited), "{waited:?}");
    }

    #[test]
    fn a_switch_of_another_service_is_no_news() {
        let message = b"orders 10.0.0.1 6379 10.0.0.2 6380";
        assert_eq!(switched("orders", message), Some(Address::new("10.0.0.2", 6380)));
        assert_eq!(switched("order", message), None);
        for message in ["", "orders", "orders a 1 b", "orders a 1 b x"] {
            assert_eq!(switched("orders", message.as_bytes()), None, "{message:?}");
        }
    }

    #[test]
    fn an_answer_names_host_and_port() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        assert_eq!(address(&Value::Array(vec![bulk("::1"), bulk("7")])), Some(Address::new("::1", 7)));
        for answer in [vec![], vec![bulk("h")], vec![bulk("h"), bulk("x")], vec![bulk("h"), Value::Int(7)]] {
            assert_eq!(address(&Value::Array(answer)), None);
        }
    }

    #[test]
    fn the_epoch_is_read_wherever_it_stands() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let said = |words: &[&str]| Value::Array(words.iter().map(|word| bulk(word)).collect());
        assert_eq!(epoch(&said(&["name", "config-epoch", "config-epoch", "7", "quorum", "2"])), Some(7));
        for words in [&[][..], &["config-epoch"], &["config-epoch", "x"], &["name", "config-epoch"]] {
            assert_eq!(epoch(&said(words)), None, "{words:?}");
        }
    }
}
