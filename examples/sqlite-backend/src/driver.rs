//! The driver of `sqlite://`.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, Context, Driver, Error, Scheme, SettingDoc, Settings};

use crate::{Config, Sqlite, config::NAME};

/// Connects to the locks in a database file.
#[derive(Debug, Clone, Copy)]
pub struct SqliteDriver;

#[async_trait]
impl Driver for SqliteDriver {
    fn schemes(&self) -> &'static [Scheme] {
        &[Scheme {
            name: NAME,
            summary: "this machine: leases in an SQLite database file; a lock ends by its ttl",
            form: "sqlite:///FILE",
            example: "sqlite:///var/lib/app/locks.db",
            with_tls: None,
        }]
    }

    fn settings(&self, _: &str) -> Vec<SettingDoc> {
        Config::docs()
    }

    async fn connect(&self, settings: Settings, context: Context) -> Result<Arc<dyn Backend>, Error> {
        Ok(Sqlite::connect_in(Config::from_settings(settings)?, context).await?)
    }
}
