//! Sentinels: they know which server is the primary of a service, and say when that changes.

use std::{fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use lock_core::Clock;
use redis::Value;
use tokio::{runtime::Handle, task::AbortHandle};

use super::{Address, AddressMap, Guide, Node, NodeConfig, NodeError, ask_once};

/// The channel on which sentinels say that a service has another primary.
const SWITCHED: &str = "+switch-master";

/// Those who are asked for the primary of one service.
///
/// All are asked at once, and the first answer counts, provided that the server that it names says itself that it is a
/// primary: a sentinel that was cut off goes on naming the one that it knew.
#[derive(Clone)]
pub(crate) struct Sentinels {
    shared: Arc<Shared>,
}

struct Shared {
    service: String,
    sentinels: Vec<NodeConfig>,
    addresses: AddressMap,
}

/// Listens to what sentinels say by themselves, until it is dropped.
#[derive(Debug)]
pub(crate) struct Listening(AbortHandle);

impl Sentinels {
    /// Those who know `service`; what they say of addresses is read by `addresses`.
    pub(crate) fn new(service: String, sentinels: Vec<NodeConfig>, addresses: AddressMap) -> Self {
        Self { shared: Arc::new(Shared { service, sentinels, addresses }) }
    }

    /// Has `node` look for its primary as soon as a sentinel says that there is another one. It would find out by itself,
    /// later: nothing relies on this.
    pub(crate) fn tell(&self, node: &Node, clock: Clock, runtime: &Handle) -> Listening {
        Listening(runtime.spawn(listen(Arc::clone(&self.shared), node.clone(), clock, runtime.clone())).abort_handle())
    }
}

impl Guide for Sentinels {
    fn candidates(&self) -> Vec<BoxFuture<'static, Result<Address, NodeError>>> {
        let ask = |at: usize| {
            let shared = Arc::clone(&self.shared);
            async move { shared.ask(at).await }.boxed()
        };
        (0..self.shared.sentinels.len()).map(ask).collect()
    }

    fn addresses(&self) -> &AddressMap {
        &self.shared.addresses
    }
}

impl Shared {
    async fn ask(&self, at: usize) -> Result<Address, NodeError> {
        let sentinel = &self.sentinels[at];
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answers = ask_once(&Address::new(&sentinel.host, sentinel.port), sentinel.user(), &[question]).await;
        match answers.map_err(NodeError::not_connected)?.as_slice() {
            [Value::Nil] => Err(NodeError::unknown_service(&self.service)),
            answers => {
                let address = answers.first().and_then(address);
                address.ok_or_else(|| NodeError::nonsense(&Value::Array(answers.to_vec())).not_applied())
            }
        }
    }
}

fn address(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    Some(Address::new(std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?.parse().ok()?))
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
async fn listen(shared: Arc<Shared>, node: Node, clock: Clock, runtime: Handle) {
    for sentinel in shared.sentinels.iter().cycle() {
        let (told, service) = (node.clone(), shared.service.clone());
        let listener = move |message: &[u8]| {
            if let Some(primary) = switched(&service, message) {
                tracing::debug!(service, %primary, "the sentinels have switched to another primary");
                told.heard(&primary);
            }
        };
        let sentinel = Node::new(sentinel.clone(), clock, runtime.clone());
        let _heard = sentinel.subscribe_each(SWITCHED, Arc::new(listener));
        sentinel.out(clock.now()).await;
        sentinel.close();
    }
}

impl Listening {
    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { service, sentinels, .. } = &*self.shared;
        f.debug_struct("Sentinels").field("service", service).field("sentinels", sentinels).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn whatever_a_sentinel_publishes_is_an_address_of_this_service_or_nothing(message in "(mymaster )?(\\PC{0,6} ){0,5}[0-9]{0,7}") {
            if switched("mymaster", message.as_bytes()).is_some() {
                proptest::prop_assert!(message.starts_with("mymaster "));
            }
        }
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
}
