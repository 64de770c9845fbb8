//! The driver of `redlock://`.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, Context, Diagnosis, Driver, Error, Scheme, SettingDoc, Settings};

use crate::{Config, Redlock, config, diagnose::diagnose};

/// The name of this backend.
pub(crate) const BACKEND: &str = "redlock";

/// Connects to a deployment of independent Redis servers.
#[derive(Debug, Clone, Copy)]
pub struct RedlockDriver;

#[async_trait]
impl Driver for RedlockDriver {
    fn schemes(&self) -> &'static [Scheme] {
        &[Scheme {
            name: BACKEND,
            summary: "Redlock: a majority of independent Redis nodes, which survives the loss of a minority of them",
            form: "redlock://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][,...]",
            example: "redlock://127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381",
            with_tls: Some("redlocks"),
        }]
    }

    fn settings(&self, scheme: &str) -> Vec<SettingDoc> {
        config::settings(scheme)
    }

    async fn connect(&self, settings: Settings, context: Context) -> Result<Arc<dyn Backend>, Error> {
        Ok(Redlock::connect_in(Config::from_settings(settings)?, context).await?)
    }

    async fn diagnose(&self, settings: Settings, context: Context) -> Result<Diagnosis, Error> {
        Ok(diagnose(&Config::from_settings(settings)?, &context).await)
    }
}
