//! What tests wait for: each wait ends with what it is for, or panics after [`LIMIT`].

use std::time::Duration;

use lock_core::{Clock, Validity};

/// Far beyond what a test waits for on a busy machine: what has not come by then does not come.
pub const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// The output of `future`.
///
/// # Panics
/// When it takes longer than [`LIMIT`].
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    Clock::boot().timeout(LIMIT, future).await.unwrap_or_else(|| panic!("not within {LIMIT:?}: {what}"))
}

/// Looks again and again until `is_so`.
///
/// # Panics
/// When it takes longer than [`LIMIT`].
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !is_so().await {
            Clock::boot().sleep(PAUSE).await;
        }
    })
    .await;
}

/// Waits until each of them was extended by a renewal that was sent after this was called.
///
/// # Panics
/// When one of them is lost, or it takes longer than [`LIMIT`].
pub async fn renewed<'a>(validities: impl IntoIterator<Item = &'a Validity>) {
    let validities: Vec<_> = validities.into_iter().collect();
    // The next renewal may be under way already; the one after it is not.
    for _ in 0..2 {
        let before: Vec<_> = validities.iter().map(|validity| validity.valid_until()).collect();
        let is_new = || validities.iter().zip(&before).all(|(validity, before)| validity.valid_until() != *before);
        eventually("a renewal of each", async || is_new()).await;
        assert!(validities.iter().all(|validity| validity.is_valid()), "lost: {validities:?}");
    }
}
