//! What a simulator takes out of the shipped code, one at a time, to see that it is missed.

#[cfg(feature = "simulation")]
thread_local! {
    static TAKEN_OUT: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// Whether the safeguard of that name is in place. Without the feature `simulation` it always is.
#[cfg(not(feature = "simulation"))]
#[inline]
#[must_use]
pub const fn safeguard(_name: &'static str) -> bool {
    true
}

/// Whether the safeguard of that name is in place: it is, unless this thread plays a schedule without it.
#[cfg(feature = "simulation")]
#[inline]
#[must_use]
pub fn safeguard(name: &'static str) -> bool {
    TAKEN_OUT.get() != name
}

/// Takes the safeguard of that name out of everything that runs on this thread; nothing for `None`.
#[cfg(feature = "simulation")]
pub fn take_out(name: Option<&'static str>) {
    TAKEN_OUT.set(name.unwrap_or_default());
}
