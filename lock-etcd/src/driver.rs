//! The driver of `etcd://`.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, Context, Diagnosis, Driver, Error, Scheme, SettingDoc, Settings};

use crate::{
    Config, Etcd,
    config::{NAME, WITH_TLS},
    diagnose::diagnose,
};

/// Connects to etcd.
#[derive(Debug, Clone, Copy)]
pub struct EtcdDriver;

#[async_trait]
impl Driver for EtcdDriver {
    fn schemes(&self) -> &'static [Scheme] {
        &[Scheme {
            name: NAME,
            summary: "etcd, one server or a cluster: a fair queue of keys; a lock ends with its session",
            form: "etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PATH]",
            example: "etcd://127.0.0.1:2379",
            with_tls: Some(WITH_TLS),
        }]
    }

    fn settings(&self, scheme: &str) -> Vec<SettingDoc> {
        Config::docs(scheme)
    }

    async fn connect(&self, settings: Settings, context: Context) -> Result<Arc<dyn Backend>, Error> {
        Ok(Etcd::connect_in(Config::from_settings(settings)?, context).await?)
    }

    async fn diagnose(&self, settings: Settings, context: Context) -> Result<Diagnosis, Error> {
        diagnose(&Config::from_settings(settings)?, &context).await
    }
}
