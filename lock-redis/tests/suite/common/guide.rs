//! A sentinel that says what it is told to say.

#![allow(dead_code)] // Each test binary uses its own part of this.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_core::Clock;
use lock_redis::node::Address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    sync::watch,
    task::JoinHandle,
};

/// What sentinels call the servers.
pub(crate) const SERVICE: &str = "orders";

/// What it says when it is asked.
#[derive(Debug, Clone, Copy)]
struct Named {
    primary: u16,
    epoch: u64,
    /// It takes this long to answer.
    after: Duration,
}

/// Names a primary, right or wrong. Ends when dropped.
pub(crate) struct FalseSentinel {
    port: u16,
    named: Arc<Mutex<Named>>,
    said: watch::Sender<String>,
    serving: JoinHandle<()>,
}

impl FalseSentinel {
    /// One that names the server on this loopback port.
    pub(crate) async fn naming(primary: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let named = Named { primary, epoch: 0, after: Duration::ZERO };
        let (named, said) = (Arc::new(Mutex::new(named)), watch::Sender::new(String::new()));
        let serving = tokio::spawn({
            let (named, said) = (Arc::clone(&named), said.clone());
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(serve(client, Arc::clone(&named), said.subscribe()));
                }
            }
        });
        Self { port, named, said, serving }
    }

    pub(crate) fn address(&self) -> Address {
        Address::new("127.0.0.1", self.port)
    }

    /// Names another server from now on, without saying so to those who listen.
    pub(crate) fn name(&self, primary: u16) {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).primary = primary;
    }

    /// Has it name its primary under this epoch, and take so long to answer.
    pub(crate) fn under(self, epoch: u64, after: Duration) -> Self {
        {
            let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            (named.epoch, named.after) = (epoch, after);
        }
        self
    }

    /// Tells those who listen that the primary is another one.
    pub(crate) fn say_switched(&self, from: u16, to: u16) {
        self.said.send_replace(format!("{SERVICE} 127.0.0.1 {from} 127.0.0.1 {to}"));
    }

    /// How many listen.
    pub(crate) fn listeners(&self) -> usize {
        self.said.receiver_count()
    }
}

impl Drop for FalseSentinel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

async fn serve(client: TcpStream, named: Arc<Mutex<Named>>, said: watch::Receiver<String>) {
    let (mut requests, mut answers) = client.into_split();
    let (mut request, mut said) = (vec![0; 4_096], Some(said));
    while let Ok(length @ 1..) = requests.read(&mut request).await {
        let asked = String::from_utf8_lossy(&request[..length]).into_owned();
        if asked.contains("GET-MASTER-ADDR-BY-NAME") {
            // Who only asks is no listener.
            said = None;
            let Named { primary, epoch, after } = *named.lock().unwrap_or_else(PoisonError::into_inner);
            Clock::boot().sleep(after).await;
            let (port, epoch) = (primary.to_string(), epoch.to_string());
            let address = format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port));
            let answer =
                format!("{address}*4\r\n{}{}{}{}", bulk("name"), bulk(SERVICE), bulk("config-epoch"), bulk(&epoch));
            if answers.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        } else if asked.contains("SUBSCRIBE") {
            let Some(said) = said.take() else { return };
            return tell(answers, said).await;
        }
    }
}

async fn tell(mut answers: OwnedWriteHalf, mut said: watch::Receiver<String>) {
    let confirmed = format!("*3\r\n{}{}:1\r\n", bulk("subscribe"), bulk("+switch-master"));
    let mut next = confirmed;
    while answers.write_all(next.as_bytes()).await.is_ok() && said.changed().await.is_ok() {
        next = format!("*3\r\n{}{}{}", bulk("message"), bulk("+switch-master"), bulk(&said.borrow_and_update()));
    }
}
