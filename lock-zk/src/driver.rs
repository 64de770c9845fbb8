//! The driver of `zk://`.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, Context, Diagnosis, Driver, Error, Scheme, SettingDoc, Settings};

use crate::{
    Config, ZooKeeper,
    config::{self, NAME},
    diagnose::diagnose,
};

/// Connects to a ZooKeeper ensemble.
#[derive(Debug, Clone, Copy)]
pub struct ZooKeeperDriver;

#[async_trait]
impl Driver for ZooKeeperDriver {
    fn schemes(&self) -> &'static [Scheme] {
        &[Scheme {
            name: NAME,
            summary: "ZooKeeper: a fair queue on an ensemble that survives the loss of a minority of its servers",
            form: "zk://HOST[:PORT][,HOST[:PORT]...][/PATH]",
            example: "zk://127.0.0.1:2181/app",
            with_tls: Some("zks"),
        }]
    }

    fn settings(&self, scheme: &str) -> Vec<SettingDoc> {
        config::settings(scheme)
    }

    async fn connect(&self, settings: Settings, context: Context) -> Result<Arc<dyn Backend>, Error> {
        Ok(ZooKeeper::connect_in(Config::from_settings(settings)?, context).await?)
    }

    async fn diagnose(&self, settings: Settings, context: Context) -> Result<Diagnosis, Error> {
        Ok(diagnose(&Config::from_settings(settings)?, &context).await)
    }
}
