//! Who does the cryptography.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The provider that this build has.
#[cfg(feature = "aws-lc-rs")]
pub(crate) fn chosen() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The provider that this build has.
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
pub(crate) fn chosen() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
compile_error!("TLS needs a provider of cryptography: the cargo feature `aws-lc-rs` or `ring`");

/// Makes the provider of this build the default one of the process, unless it has one already: for a client library that
/// asks for that one.
pub fn install_default() {
    if CryptoProvider::get_default().is_none() {
        // Fails when another thread was quicker, which is as good.
        let _ = CryptoProvider::clone(&chosen()).install_default();
    }
}
