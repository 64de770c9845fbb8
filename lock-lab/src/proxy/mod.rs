//! A TCP proxy between a client and a server that delays, holds and cuts.

mod link;
mod pump;

use std::{net::Ipv4Addr, sync::Arc, sync::mpsc as std_mpsc, thread, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::mpsc,
    task::JoinSet,
};

use self::link::LinkPair;
pub use self::link::Traffic;
#[cfg(feature = "test-time")]
use crate::wait::{eventually, within};
use crate::{LabError, servers::ports};

/// A proxy on a loopback port of its own. It runs on a thread of its own, so that it goes on when a test starves its own
/// runtime; it ends when dropped.
///
/// Every method that changes something has taken effect when it returns.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    links: Arc<LinkPair>,
    orders: mpsc::UnboundedSender<ListenOrder>,
}

/// An order to the thread of a proxy: to listen for connections, or to close its port and all connections.
#[derive(Debug)]
struct ListenOrder {
    open: bool,
    done: std_mpsc::SyncSender<()>,
}

impl Proxy {
    /// Starts a proxy in front of the server on loopback port `target`.
    ///
    /// # Errors
    /// [`LabError::Io`] when the operating system gives no thread or port.
    pub async fn start(target: u16) -> Result<Self, LabError> {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (started, result) = tokio::sync::oneshot::channel();
        let links = Arc::new(LinkPair::default());
        let serving = Arc::clone(&links);
        let work = move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(serve(target, serving, inbox, started)),
                // The receiver outlives this.
                Err(error) => drop(started.send(Err(error))),
            }
        };
        let failed = |source| LabError::io("starting a proxy", source);
        thread::Builder::new().name(format!("proxy-to-{target}")).spawn(work).map_err(failed)?;
        let port = result.await.map_err(|_| failed(std::io::Error::other("its thread ended")))?.map_err(failed)?;
        Ok(Self { port, links, orders })
    }

    /// The loopback port to connect to instead of the server's.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Delays what passes in each direction by `delay`, so that a round trip takes twice as long. Order is kept. What
    /// is under way keeps the delay that it entered with.
    pub fn delay(&self, delay: Duration) {
        self.delay_each(delay, delay);
    }

    /// Delays requests and replies differently.
    pub fn delay_each(&self, requests: Duration, replies: Duration) {
        self.links.requests.delay(requests);
        self.links.replies.delay(replies);
    }

    /// Keeps connections open (new ones too) and forwards nothing in either direction, until [`Proxy::heal`], which
    /// lets through what came meanwhile.
    pub fn hold(&self) {
        self.hold_requests();
        self.hold_replies();
    }

    /// Holds what clients send; replies pass.
    pub fn hold_requests(&self) {
        self.links.requests.hold(true);
    }

    /// Holds what the server sends; requests pass and are carried out.
    pub fn hold_replies(&self) {
        self.links.replies.hold(true);
    }

    /// Breaks all connections and refuses new ones, until [`Proxy::heal`]. What was under way is lost.
    pub fn cut(&self) {
        self.order(false);
    }

    /// Breaks all connections; new ones are served.
    pub fn cut_once(&self) {
        self.order(false);
        self.order(true);
    }

    /// Breaks a connection instead of forwarding its reply, when as many replies as `after` have passed from now on over
    /// all connections: the request was carried out, and its client is not told. Each piece that the server wrote at once
    /// counts as a reply. The other connections and all later replies pass.
    pub fn cut_at_reply(&self, after: u64) {
        self.links.replies.break_after(after);
    }

    /// Serves again, without delay, hold or cut.
    pub fn heal(&self) {
        self.delay(Duration::ZERO);
        self.links.replies.never_break();
        self.links.requests.hold(false);
        self.links.replies.hold(false);
        self.order(true);
    }

    /// What clients have sent to the server so far.
    #[must_use]
    pub fn requests(&self) -> Traffic {
        self.links.requests.traffic()
    }

    /// What the server has sent to clients so far.
    #[must_use]
    pub fn replies(&self) -> Traffic {
        self.links.replies.traffic()
    }

    fn order(&self, open: bool) {
        let (done, carried_out) = std_mpsc::sync_channel(1);
        // The thread lives as long as the sender here; should it have failed, there is nothing left to cut.
        if self.orders.send(ListenOrder { open, done }).is_ok() {
            let _ = carried_out.recv();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        ports::give_back(self.port);
    }
}

/// The output of `asking`, which waits for answers by these `ways` that come while this program stands still: on the runtime's
/// clock a little more than `limit` passes at once, and they are there afterwards. For a runtime of one thread.
///
/// # Panics
/// When nothing is asked, nothing comes of it, or `asking` panics.
#[cfg(feature = "test-time")]
pub async fn answered_in_a_standstill<F>(ways: &[Proxy], limit: Duration, asking: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    let asked_before: Vec<_> = ways.iter().map(|way| way.requests().bursts).collect();
    ways.iter().for_each(Proxy::hold_replies);
    let asking = tokio::spawn(asking);
    let is_asked = || ways.iter().zip(&asked_before).all(|(way, before)| way.requests().bursts > *before);
    eventually("the requests", async || is_asked()).await;
    tokio::time::pause();
    tokio::time::advance(limit + Duration::from_millis(100)).await;
    tokio::time::resume();
    tokio::task::yield_now().await;
    ways.iter().for_each(Proxy::heal);
    within("the answer", asking).await.expect("it does not panic")
}

/// Serves until the proxy is dropped.
async fn serve(
    target: u16,
    links: Arc<LinkPair>,
    mut orders: mpsc::UnboundedReceiver<ListenOrder>,
    started: tokio::sync::oneshot::Sender<std::io::Result<u16>>,
) {
    let (port, first) = listen_somewhere().await;
    let mut listener = Some(first);
    let mut connections = JoinSet::new();
    if started.send(Ok(port)).is_err() {
        return;
    }
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some(ListenOrder { open, done }) = order else { return };
                if open {
                    if listener.is_none() {
                        listener = Some(listen(port).await);
                    }
                } else {
                    listener = None;
                    connections.shutdown().await;
                }
                // Nobody waits for it when the caller's thread panicked.
                let _ = done.send(());
            }
            client = accept(listener.as_ref()) => {
                connections.spawn(connection(client, target, Arc::clone(&links)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(client: TcpStream, target: u16, links: Arc<LinkPair>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
    // Without it the proxy itself would add the delays that it is there to measure.
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The first direction that ends closes both: a proxy that kept half a connection would hide the loss of a server.
    tokio::select! {
        () = pump::pump(from_client, to_server, &links.requests) => {}
        () = pump::pump(from_server, to_client, &links.replies) => {}
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    loop {
        match listener {
            None => std::future::pending().await,
            Some(listener) => match listener.accept().await {
                Ok((client, _)) => return client,
                // Out of descriptors, or the client is gone again: others may still come.
                Err(_) => tokio::task::yield_now().await,
            },
        }
    }
}

async fn listen_somewhere() -> (u16, TcpListener) {
    loop {
        let port = ports::free();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => return (port, listener),
            Err(_) => ports::give_back(port),
        }
    }
}

/// Listens on the proxy's own port again. It was free when the proxy started and is below those that the kernel gives
/// out, so at most the sockets of connections that are just closing are in the way.
async fn listen(port: u16) -> TcpListener {
    loop {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return listener;
        }
        lock_core::Clock::boot().sleep(Duration::from_millis(1)).await;
    }
}
