//! Data in Redis.

use lock::{
    FencingToken,
    fence::redis::{FenceError, FencedKey, SCRIPT},
};
use lock_lab::servers::{Redis, ZooKeeper};
use redis::{AsyncCommands, aio::MultiplexedConnection};

use super::{numbered, old_and_new};

const KEY: &str = "report";

struct Store {
    server: Redis,
    url: String,
    connection: MultiplexedConnection,
    fenced: FencedKey,
}

async fn store() -> Store {
    let server = Redis::start().await.unwrap();
    let (url, connection) = (server.url(), server.connection().await.unwrap());
    Store { server, url, connection, fenced: FencedKey::new(KEY) }
}

impl Store {
    async fn set(&mut self, token: FencingToken, value: &str) -> Result<(), FenceError> {
        self.fenced.set(&mut self.connection, token, value).await
    }

    async fn value(&mut self) -> Option<String> {
        self.connection.get(KEY).await.unwrap()
    }
}

fn stale(result: Result<(), FenceError>) -> (FencingToken, FencingToken) {
    match result {
        Err(FenceError::Stale(stale)) => {
            assert_eq!(stale.resource, KEY);
            (stale.given, stale.highest)
        }
        other => panic!("not refused as stale: {other:?}"),
    }
}

#[tokio::test]
async fn the_old_holder_is_refused_and_the_new_one_writes_again_and_again() {
    let mut store = store().await;
    let url = store.url.clone();
    let (old, new) = old_and_new(&url).await;
    store.set(old, "first").await.unwrap();
    store.set(new, "second").await.unwrap();
    store.set(new, "third").await.unwrap();
    assert_eq!(stale(store.set(old, "late").await), (old, new));
    assert_eq!(store.value().await.as_deref(), Some("third"));
    let deleted = store.fenced.delete(&mut store.connection, old).await;
    assert_eq!(stale(deleted), (old, new));
    store.fenced.delete(&mut store.connection, new).await.unwrap();
    assert_eq!(store.value().await, None);
    assert_eq!(stale(store.set(old, "late").await), (old, new), "the fence outlives what it guards");
}

#[tokio::test]
async fn a_lock_of_another_kind_guards_it_as_well() {
    let ensemble = ZooKeeper::start(1).await.unwrap();
    let (old, new) = old_and_new(&ensemble.url()).await;
    let mut store = store().await;
    store.set(new, "new").await.unwrap();
    assert_eq!(stale(store.set(old, "late").await), (old, new));
}

/// Numbers beyond 53 bits differ in what a Lua number does not hold.
#[tokio::test]
async fn the_server_compares_tokens_as_this_program_does() {
    let mut store = store().await;
    let numbers = [
        0,
        1,
        9,
        10,
        9_999_999_999,
        10_000_000_000,
        1 << 53,
        (1 << 53) + 1,
        (1 << 53) + 2,
        1_700_000_000_000_001,
        9_999_999_999_999_999,
        u64::MAX - 1,
        u64::MAX,
    ];
    let tokens = [0, 1, 10, 921, u32::MAX].map(|era| numbers.map(|number| FencingToken { era, number })).concat();
    for highest in &tokens {
        for given in &tokens {
            store.connection.set::<_, _, ()>(store.fenced.token_key(), highest.to_string()).await.unwrap();
            let result = store.set(*given, "x").await;
            if given < highest {
                assert_eq!(stale(result), (*given, *highest));
            } else {
                result.unwrap();
                let kept: String = store.connection.get(store.fenced.token_key()).await.unwrap();
                assert_eq!(kept, given.to_string());
            }
            let Ok(integer) = given.to_i64() else { continue };
            store.connection.set::<_, _, ()>(store.fenced.token_key(), highest.to_string()).await.unwrap();
            let answer = evaluated(&mut store.connection, &integer.to_string(), Some("x")).await.unwrap();
            assert_eq!(answer, (given < highest).then(|| highest.to_string()), "{integer} and {highest}");
            let kept: String = store.connection.get(store.fenced.token_key()).await.unwrap();
            assert_eq!(kept, given.max(highest).to_string());
        }
    }
}

/// What the script answers to a client that knows nothing of this crate.
async fn evaluated(
    connection: &mut MultiplexedConnection,
    token: &str,
    value: Option<&str>,
) -> Result<Option<String>, redis::RedisError> {
    let mut command = redis::cmd("EVAL");
    command.arg(SCRIPT).arg(2).arg(KEY).arg("{report}:fence").arg(token).arg(value);
    command.query_async(connection).await
}

#[tokio::test]
async fn the_script_alone_is_enough_for_other_clients() {
    let mut store = store().await;
    let mut eval = async |token: &str, value: Option<&str>| evaluated(&mut store.connection, token, value).await;
    let (low, high) = (numbered(33).to_string(), numbered(34).to_string());
    assert_eq!(eval(&high, Some("a")).await.unwrap(), None);
    assert_eq!(eval(&low, Some("b")).await.unwrap(), Some(high.clone()));
    assert_eq!(eval("33", Some("b")).await.unwrap(), Some(high.clone()), "as an integer");
    assert_eq!(eval("34", Some("c")).await.unwrap(), None, "as an integer");
    assert_eq!(eval(&high, None).await.unwrap(), None);
    for malformed in [
        "",
        "-34",
        "34.0",
        "00000000000000000034",
        "0000000000-34",
        "0000000000000000000000000000034",
        "000000000x-00000000000000000034",
    ] {
        let refused = eval(malformed, Some("c")).await.unwrap_err();
        assert!(refused.to_string().contains("not a fencing token"), "{refused}");
    }
    assert_eq!(store.value().await, None);
    assert_eq!(stale(store.set(numbered(33), "late").await).1, numbered(34));
}

#[tokio::test]
async fn a_token_key_that_holds_something_else_refuses_everybody() {
    let mut store = store().await;
    store.connection.set::<_, _, ()>("{report}:fence", "yesterday").await.unwrap();
    let refused = store.set(numbered(1), "x").await.unwrap_err();
    assert!(matches!(&refused, FenceError::Redis(_)), "{refused}");
    store.connection.del::<_, ()>("{report}:fence").await.unwrap();
    store.connection.lpush::<_, _, ()>("{report}:fence", "a list").await.unwrap();
    assert!(matches!(store.set(numbered(1), "x").await, Err(FenceError::Redis(_))));
    assert_eq!(store.value().await, None);
}

#[tokio::test]
async fn several_values_may_stand_behind_one_fence() {
    let mut store = store().await;
    let [left, right] = ["{pair}:left", "{pair}:right"].map(|key| FencedKey::new(key).with_token_key("{pair}:fence"));
    left.set(&mut store.connection, numbered(2), "l").await.unwrap();
    let refused = right.set(&mut store.connection, numbered(1), "r").await;
    assert!(matches!(refused, Err(FenceError::Stale(_))));
    right.set(&mut store.connection, numbered(2), [0, 255]).await.unwrap();
    assert_eq!(store.connection.get::<_, Vec<u8>>(right.key()).await.unwrap(), [0, 255]);
}

#[tokio::test]
async fn an_unreachable_store_is_no_stale_token() {
    let mut store = store().await;
    store.server.kill();
    assert!(matches!(store.set(numbered(1), "x").await, Err(FenceError::Redis(_))));
}
