//! Data in ZooKeeper.

use std::time::Duration;

use lock::{
    FencingToken,
    fence::zk::{FenceError, FencedNode},
};
use lock_lab::servers::ZooKeeper;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use super::{numbered, old_and_new};

const PATH: &str = "/report";

const OPEN: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

const NODE: FencedNode<'static> = FencedNode::new(PATH, OPEN);

async fn client(ensemble: &ZooKeeper, server: usize) -> Client {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(60));
    connector.connect(&format!("127.0.0.1:{}", ensemble.ports()[server])).await.unwrap()
}

fn stale(result: Result<(), FenceError>) -> (FencingToken, FencingToken) {
    match result {
        Err(FenceError::Stale(stale)) => {
            assert_eq!(stale.resource, PATH);
            (stale.given, stale.highest)
        }
        other => panic!("not refused as stale: {other:?}"),
    }
}

#[tokio::test]
async fn the_old_holder_is_refused_and_the_new_one_writes_again_and_again() {
    let ensemble = ZooKeeper::start(1).await.unwrap();
    let (old, new) = old_and_new(&ensemble.url()).await;
    let client = client(&ensemble, 0).await;
    assert_eq!(NODE.read(&client).await.unwrap(), None);
    NODE.write(&client, old, b"first").await.unwrap();
    NODE.write(&client, new, b"second").await.unwrap();
    NODE.write(&client, new, b"third").await.unwrap();
    assert_eq!(stale(NODE.write(&client, old, b"late").await), (old, new));
    let found = NODE.read(&client).await.unwrap().unwrap();
    assert_eq!((found.token, found.data.as_slice()), (new, b"third".as_slice()));
}

/// The old holder asks another server, which may not know of the new one's write yet.
#[tokio::test]
async fn the_old_holder_is_refused_by_every_server_of_an_ensemble() {
    let ensemble = ZooKeeper::start(3).await.unwrap();
    let mut clients = Vec::new();
    for server in 0..3 {
        clients.push(client(&ensemble, server).await);
    }
    for round in 0..60 {
        let (new, old) = (&clients[round % 3], &clients[(round + 1) % 3]);
        let number = 2 * round as u64 + 10;
        NODE.write(new, numbered(number), b"new").await.unwrap();
        assert_eq!(stale(NODE.write(old, numbered(number - 1), b"late").await).1, numbered(number));
    }
}

/// Each writer reads, compares and writes; what was read must still be so when it is written.
#[tokio::test]
async fn of_writers_that_race_the_highest_token_stands_in_the_end() {
    let ensemble = ZooKeeper::start(1).await.unwrap();
    let mut tasks = Vec::new();
    for writer in 0..6_u64 {
        let client = client(&ensemble, 0).await;
        tasks.push(tokio::spawn(async move {
            let mut refused = 0;
            for round in 0..20 {
                let token = numbered(6 * round + writer + 1);
                match NODE.write(&client, token, token.to_string().as_bytes()).await {
                    Ok(()) => {}
                    Err(FenceError::Stale(stale)) => {
                        assert!(stale.highest > token);
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
                let seen = NODE.read(&client).await.unwrap().unwrap();
                assert!(seen.token >= token, "a lower token came after {token}");
                assert_eq!(seen.data, seen.token.to_string().as_bytes(), "token and data are of one write");
            }
            refused
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let last = NODE.read(&client(&ensemble, 0).await).await.unwrap().unwrap();
    assert_eq!(last.token, numbered(120));
}

#[tokio::test]
async fn what_is_written_along_is_written_in_one_step_with_the_check() {
    let ensemble = ZooKeeper::start(1).await.unwrap();
    let client = client(&ensemble, 0).await;
    client.create("/plain", b"0", &OPEN).await.unwrap();
    let write = async |number: u64, path: &'static str| {
        let data = number.to_string();
        NODE.write_with(&client, numbered(number), b"", |also| also.add_set_data(path, data.as_bytes(), None)).await
    };
    write(5, "/plain").await.unwrap();
    assert!(matches!(write(4, "/plain").await, Err(FenceError::Stale(_))));
    assert_eq!(client.get_data("/plain").await.unwrap().0, b"5");
    assert!(matches!(write(6, "/absent").await, Err(FenceError::Client(Error::NoNode))));
    assert_eq!(NODE.read(&client).await.unwrap().unwrap().token, numbered(5), "nothing of it was written");
}

#[tokio::test]
async fn a_node_that_was_not_written_through_the_fence_is_left_alone() {
    let ensemble = ZooKeeper::start(1).await.unwrap();
    let client = client(&ensemble, 0).await;
    client.create(PATH, b"somebody else's", &OPEN).await.unwrap();
    let refused = NODE.write(&client, numbered(1), b"x").await.unwrap_err();
    assert!(matches!(&refused, FenceError::NoToken { path } if path == PATH), "{refused}");
    assert_eq!(client.get_data(PATH).await.unwrap().0, b"somebody else's");
    let orphan = FencedNode::new("/absent/report", OPEN);
    assert!(matches!(orphan.write(&client, numbered(1), b"x").await, Err(FenceError::Client(Error::NoNode))));
}
