//! Moves one direction of one connection.

use lock_core::{BootInstant, Clock};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    sync::mpsc,
};

use super::link::Link;

/// Bytes that a proxy has read at once, and when it forwards them.
struct Burst {
    bytes: Vec<u8>,
    due: Option<BootInstant>,
}

/// Forwards until either side is closed or the link breaks the connection.
pub(super) async fn pump(from: OwnedReadHalf, to: OwnedWriteHalf, link: &Link) {
    // Unbounded: a delay or a hold must not push back on the sender, as a long wire would not.
    let (queue, bursts) = mpsc::unbounded_channel();
    tokio::join!(read(from, queue, link), write(bursts, to, link));
}

/// Reads until the end, or until the writer has given up.
async fn read(mut from: OwnedReadHalf, queue: mpsc::UnboundedSender<Burst>, link: &Link) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = tokio::select! {
            length = from.read(&mut buffer) => length,
            () = queue.closed() => return,
        };
        let Ok(length @ 1..) = length else { return };
        let delay = link.delay_now();
        let due = (!delay.is_zero()).then(|| Clock::boot().now().saturating_add(delay));
        if queue.send(Burst { bytes: buffer[..length].to_vec(), due }).is_err() {
            return;
        }
    }
}

async fn write(mut bursts: mpsc::UnboundedReceiver<Burst>, mut to: OwnedWriteHalf, link: &Link) {
    while let Some(burst) = bursts.recv().await {
        if let Some(due) = burst.due {
            Clock::boot().sleep_until(due).await;
        }
        link.passing().await;
        if link.breaks_now() {
            return;
        }
        // Before the write: who has seen the bytes finds them counted.
        link.count(burst.bytes.len());
        if to.write_all(&burst.bytes).await.is_err() {
            return;
        }
    }
}
