//! What a program must be allowed to do on the servers, and what it says where it is not. That the right to create on the
//! root is enough for everything is shown by the conformance suite, which runs with just that.

use crate::common::{connect, outsider, queued, server, within};
use lock_core::{Error, Locks};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

/// Makes a node on which everybody has those rights, and nobody others.
async fn make(client: &Client, path: &str, rights: Permission) {
    let acl = [Acl::new(rights, AuthId::anyone())];
    client.create(path, b"", &CreateMode::Persistent.with_acls(Acls::new(&acl))).await.unwrap();
}

#[tokio::test]
async fn in_directories_that_were_made_before_the_rights_to_create_read_and_delete_are_enough() {
    let server = server().await;
    let port = server.ports()[0];
    let client = outsider(port).await;
    make(&client, "/locks", Permission::CREATE).await;
    make(&client, "/locks/.sessions", Permission::CREATE).await;
    make(&client, "/locks/made", Permission::CREATE | Permission::READ | Permission::DELETE).await;
    let zk = connect(port).await;
    let locks = Locks::new(zk.clone());
    let writer = within("a grant", locks.rwlock("made").write()).await.unwrap();
    let waiting = tokio::spawn({
        let lock = locks.rwlock("made");
        async move { lock.read().await }
    });
    queued(&zk, "made", 1).await;
    let reader = writer.downgrade().await.unwrap();
    let beside = within("a grant", waiting).await.unwrap().unwrap();
    beside.release().await.unwrap();
    reader.release().await.unwrap();
    let permit = within("a grant", locks.semaphore("made", 2).acquire()).await.unwrap();
    permit.release().await.unwrap();
}

#[tokio::test]
async fn a_name_whose_directory_must_not_be_made_is_refused_with_the_servers_reason() {
    let server = server().await;
    let port = server.ports()[0];
    make(&outsider(port).await, "/locks", Permission::READ).await;
    let locks = Locks::new(connect(port).await);
    let refused = within("a refusal", locks.mutex("new").lock()).await.unwrap_err();
    let Error::Refused { source: Some(source), .. } = &refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("not authorized"), "{refused}: {source}");
}
