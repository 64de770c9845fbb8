//! The victim in a network namespace of its own. This takes root, and fails without it.

use std::{process::Stdio, time::Duration};

use lock_lab::failover::{
    fault::Fault,
    scene::{Scene, Side},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
};

use crate::scenes::stage::{LIMIT, Stage, ask, eventually};

/// The host and port that the victim connects to.
fn address(scene: &Scene) -> (String, String) {
    let url = scene.url(Side::Victim, LIMIT);
    let host = url.strip_prefix("redis://").unwrap().split('/').next().unwrap();
    let (host, port) = host.split_once(':').unwrap();
    (host.to_owned(), port.to_owned())
}

/// A program in the victim's namespace that passes on what it is told over a connection to the server.
fn connection(scene: &Scene) -> Child {
    let (host, port) = address(scene);
    let namespace = scene.namespace(Side::Victim).unwrap();
    let script = format!("exec 3<>/dev/tcp/{host}/{port}; cat <&3 & cat >&3");
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace.display())).args(["--", "bash", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test]
async fn what_is_dropped_between_the_namespaces_is_sent_again_by_the_kernel_and_arrives_when_the_fault_is_over() {
    let mut stage = Stage::of("redis", Fault::PacketsDropped).await;
    let mut victim = connection(&stage.scene);
    let (mut to, mut from) = (victim.stdin.take().unwrap(), victim.stdout.take().unwrap());
    let mut answer = [0; 7];
    to.write_all(b"PING\r\n").await.unwrap();
    from.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+PONG\r\n");

    stage.scene.inject().await.unwrap();
    let before = stage.scene.retransmitted().unwrap().unwrap();
    to.write_all(b"SET key value\r\n").await.unwrap();
    eventually("the kernel sends it again", async || stage.scene.retransmitted().unwrap() > Some(before + 1)).await;
    let others = crate::scenes::stage::first_port(&stage.scene.url(Side::Others, stage.lease));
    let read = async || ask::<Option<String>>(others, &["GET", "key"]).await.unwrap();
    assert_eq!(read().await, None);

    stage.heal().await;
    eventually("it arrives", async || read().await.as_deref() == Some("value")).await;
}

#[tokio::test]
async fn others_are_in_the_network_of_the_servers() {
    let mut stage = Stage::of("redlock3", Fault::PacketsDropped).await.with_lease(Duration::from_secs(20));
    assert!(stage.scene.namespace(Side::Others).is_none() && stage.scene.namespace(Side::Victim).is_some());
    stage.scene.inject().await.unwrap();
    let locks = stage.connect(Side::Others).await;
    stage.hold(&locks).await.release().await.unwrap();
    stage.heal().await;
    let scene = Stage::of("redis", Fault::Delay).await.scene;
    assert!(scene.namespace(Side::Victim).is_none() && scene.retransmitted().unwrap().is_none());
}
