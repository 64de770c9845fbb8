//! The driver of `memory://`.

use std::sync::Arc;

use async_trait::async_trait;

use super::{BACKEND, Config, Memory, config::TTL};
use crate::{Backend, Context, Driver, Error, Scheme, Settings, settings::SettingDoc};

/// Connects to the servers of this process.
#[derive(Debug, Clone, Copy)]
pub struct MemoryDriver;

#[async_trait]
impl Driver for MemoryDriver {
    fn schemes(&self) -> &'static [Scheme] {
        &[Scheme {
            name: BACKEND,
            summary: "this process only: for tests and examples",
            form: "memory://[NAME]",
            example: "memory://",
            with_tls: None,
        }]
    }

    fn settings(&self, _: &str) -> Vec<SettingDoc> {
        vec![TTL.doc()]
    }

    async fn connect(&self, settings: Settings, context: Context) -> Result<Arc<dyn Backend>, Error> {
        Ok(Memory::connect_in(Config::from_settings(settings)?, context)?)
    }
}
