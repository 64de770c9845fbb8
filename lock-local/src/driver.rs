//! The driver of `local://`.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, Context, Driver, Error, Scheme, SettingDoc, Settings};

use crate::{Config, Local, config::INHERIT};

/// Connects to the locks of a directory.
#[derive(Debug, Clone, Copy)]
pub struct LocalDriver;

#[async_trait]
impl Driver for LocalDriver {
    fn schemes(&self) -> &'static [Scheme] {
        &[Scheme {
            name: "local",
            summary: "this machine: locked files in a directory, without a server; a lock ends with its process",
            form: "local://[/DIRECTORY]",
            example: "local:///var/lib/app/locks",
            with_tls: None,
        }]
    }

    fn settings(&self, _: &str) -> Vec<SettingDoc> {
        vec![INHERIT.doc()]
    }

    async fn connect(&self, settings: Settings, context: Context) -> Result<Arc<dyn Backend>, Error> {
        Ok(Local::connect_in(Config::from_settings(settings)?, context)?)
    }
}
