//! Which server to connect to: always the same one, or whichever is the primary now.

use std::{collections::BTreeMap, str::FromStr, sync::Arc};

use futures::stream::BoxStream;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};

use super::{NodeConfig, NodeError};
use crate::wire::Address;

/// Where servers are reached that announce themselves by addresses which this program cannot use, as behind a
/// translation of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressMap(BTreeMap<Address, Address>);

impl AddressMap {
    /// With another server: it announces itself as `announced` and is reached at `reached`.
    #[must_use]
    pub fn with(mut self, announced: Address, reached: Address) -> Self {
        self.0.insert(announced, reached);
        self
    }

    /// Where the server is reached that announces itself so.
    #[must_use]
    pub fn reached<'a>(&'a self, announced: &'a Address) -> &'a Address {
        self.0.get(announced).unwrap_or(announced)
    }
}

/// Reads `announced=reached,announced=reached`.
impl FromStr for AddressMap {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.split(',').try_fold(Self::default(), |map, pair| {
            let (announced, reached) = pair.split_once('=').ok_or(())?;
            Ok(map.with(announced.parse()?, reached.parse()?))
        })
    }
}

/// A way to find out which server is the primary: from sentinels, or from the other servers of a cluster. The answers may be out of date: a server that is named is asked
/// itself, before anything else is sent to it.
pub(crate) trait PrimaryDiscovery: Send + Sync {
    /// Asks, and gives the addresses of servers that may be the primary as they come.
    fn candidates(&self) -> BoxStream<'static, Result<Address, NodeError>>;

    /// Whether the first of them that says so itself is the one, however long it takes to answer; else whichever answers
    /// first.
    fn is_in_order(&self) -> bool;

    /// Where a server is reached that announces itself as `address`.
    fn addresses(&self) -> &AddressMap;
}

/// How a node finds its server: by the address in its configuration, or by looking for the primary.
#[derive(Clone, Default)]
pub(super) enum Route {
    /// It is the one of the configuration.
    #[default]
    Fixed,
    /// It is whichever is the primary.
    Followed(Arc<dyn PrimaryDiscovery>),
}

/// Asks the server at `address` a few questions at once, on a connection of its own; `config` says how and as whom. Has no limit of its own. Each answer may be a refusal.
pub(crate) async fn ask_once(
    config: &NodeConfig,
    address: &Address,
    questions: &[Cmd],
) -> Result<Vec<Value>, RedisError> {
    match ask_plainly(config, address, questions).await {
        Err(error) if error.is_connection_dropped() => {
            Err(config.network.refusal(address).await.map_or(error, RedisError::from))
        }
        answered => answered,
    }
}

async fn ask_plainly(config: &NodeConfig, address: &Address, questions: &[Cmd]) -> Result<Vec<Value>, RedisError> {
    let limits = AsyncConnectionConfig::new().set_response_timeout(None);
    let stream = config.network.dial(address).await?;
    let (mut wire, driver) = MultiplexedConnection::new_with_config(&config.user()?, stream, limits).await?;
    let mut burst = Pipeline::with_capacity(questions.len());
    for question in questions {
        burst.add_command(question.clone());
    }
    let answers = tokio::select! {
        biased;
        answers = wire.send_packed_commands(&burst, 0, questions.len()) => answers?,
        () = driver => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
    };
    Ok(answers)
}

/// An answer that is none, as an error.
pub(crate) fn accepted(answer: Value) -> Result<Value, RedisError> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_not_in_the_map_is_reached_where_it_says() {
        let map: AddressMap = "10.0.0.1:1=h:2,10.0.0.2:1=h:3".parse().unwrap();
        let at = |text: &str| text.parse::<Address>().unwrap();
        assert_eq!(map.reached(&at("10.0.0.2:1")), &at("h:3"));
        assert_eq!(map.reached(&at("10.0.0.3:1")), &at("10.0.0.3:1"));
        for text in ["a:1", "a:1=b", "a=b:1", "a:1=b:1,"] {
            assert_eq!(text.parse::<AddressMap>(), Err(()), "{text}");
        }
    }
}
