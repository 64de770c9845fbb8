//! A web service of which several instances run: an order is shipped by one of them at a time.
//!
//! ```text
//! LOCK_URL=redis://127.0.0.1:6379 cargo run --example axum_service -- 127.0.0.1:8080 orders.db [PATIENCE]
//! curl -X POST http://127.0.0.1:8080/orders/4711/ship
//! ```
//!
//! | what happened | answer |
//! |---|---|
//! | shipped, or it was shipped before | 200 |
//! | another request has the order, and still had it after PATIENCE seconds (2) | 409 |
//! | the lock service is out of reach, or the lock was lost on the way | 503 with `Retry-After` |
//!
//! SIGTERM ends it in order: it takes no more requests, answers those that it has, and closes the locks.

#[path = "fenced_store/mod.rs"]
mod fenced_store;

use std::{
    env,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::post,
};
use fenced_store::{FencedStore, WriteError};
use lock::{FencingToken, Locks, fence::StaleToken};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task,
};

/// After how many seconds a client may try again, when nobody can know how long an outage lasts.
const RETRY_AFTER_SECONDS: u32 = 2;

/// What all requests share.
#[derive(Clone)]
struct Service {
    locks: Locks,
    store: Arc<Mutex<FencedStore>>,
    patience: Duration,
}

/// Why an order was not shipped.
enum ShipError {
    Lock(lock::Error),
    Store(WriteError),
}

/// Takes the lock of the order, and ships it with the token of the grant.
async fn ship(State(service): State<Service>, Path(order): Path<String>) -> Result<String, ShipError> {
    let name = format!("orders/{order}");
    // Dropped with this future when the client hangs up: then the place in line is given up, or the lock released.
    let guard = service.locks.mutex(&name).timeout(service.patience).lock().await?;
    let shipped = service.ship(name, order, guard.token());
    let said = guard.run(shipped).await?.map_err(ShipError::Store)?;
    // The order is shipped, whether or not the release is confirmed: what is left of the lock ends with its ttl.
    if let Err(error) = guard.release().await {
        eprintln!("{error}");
    }
    Ok(said)
}

impl Service {
    /// A statement that has begun goes on when this future is dropped, also beyond the loss of the lock: the store compares
    /// the token.
    async fn ship(&self, lock: String, order: String, token: FencingToken) -> Result<String, WriteError> {
        let store = Arc::clone(&self.store);
        task::spawn_blocking(move || {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(before) = store.result(&order)? {
                return Ok(format!("order {order} was {before} before\n"));
            }
            store.finish(&lock, token, &order, "shipped")?;
            Ok(format!("order {order} shipped with token {token}\n"))
        })
        .await?
    }
}

impl From<lock::Error> for ShipError {
    fn from(error: lock::Error) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for ShipError {
    fn into_response(self) -> Response {
        let again = |status: StatusCode, error: &dyn Error| {
            (status, [(RETRY_AFTER, RETRY_AFTER_SECONDS.to_string())], format!("{error}\n")).into_response()
        };
        match &self {
            Self::Lock(error @ lock::Error::NotAcquired { .. }) => {
                (StatusCode::CONFLICT, format!("{error}\n")).into_response()
            }
            Self::Lock(error) if error.is_temporary() => again(StatusCode::SERVICE_UNAVAILABLE, error),
            // A later holder has been here, so this one had lost the lock.
            Self::Store(error) if error.is::<StaleToken>() => again(StatusCode::SERVICE_UNAVAILABLE, error.as_ref()),
            Self::Lock(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
            Self::Store(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (address, file, patience) = match arguments.as_slice() {
        [address, file] => (address, file, 2),
        [address, file, patience] => (address, file, patience.parse()?),
        _ => return Err("usage: axum_service ADDRESS FILE [PATIENCE]".into()),
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let locks = lock::connect_from_env().await?;
    let store = Arc::new(Mutex::new(FencedStore::open(file.as_ref())?));
    let service = Service { locks: locks.clone(), store, patience: Duration::from_secs(patience) };
    let router = Router::new().route("/orders/{order}/ship", post(ship)).with_state(service);
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stopped = async move {
        terminate.recv().await;
        println!("stopping");
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await?;
    // Last, when no request holds a lock any more.
    locks.close(Duration::from_secs(5)).await?;
    Ok(())
}
