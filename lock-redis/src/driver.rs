//! The driver of `redis://`, `redis+sentinel://` and `redis+cluster://`.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, Context, Diagnosis, Driver, Error, Scheme, SettingDoc, Settings};

use crate::{Config, Redis, config::settings, diagnose::diagnose};

/// Connects to Redis in its three arrangements.
#[derive(Debug, Clone, Copy)]
pub struct RedisDriver;

#[async_trait]
impl Driver for RedisDriver {
    fn schemes(&self) -> &'static [Scheme] {
        &[
            Scheme {
                name: "redis",
                summary: "one Redis server: the shortest round trip, no safety beyond that one server's memory",
                form: "redis://[USER:PASSWORD@]HOST[:PORT][/DB]",
                example: "redis://127.0.0.1:6379",
                with_tls: Some("rediss"),
            },
            Scheme {
                name: "redis+sentinel",
                summary: "Redis with Sentinels: follows the primary; a failover may lose what was not replicated",
                form: "redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DB]",
                example: "redis+sentinel://127.0.0.1:26379,127.0.0.1:26380,127.0.0.1:26381/orders",
                with_tls: Some("rediss+sentinel"),
            },
            Scheme {
                name: "redis+cluster",
                summary: "a Redis cluster: spreads the locks; a failover may lose what was not replicated",
                form: "redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]",
                example: "redis+cluster://127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381",
                with_tls: Some("rediss+cluster"),
            },
        ]
    }

    fn settings(&self, scheme: &str) -> Vec<SettingDoc> {
        settings::of(scheme)
    }

    async fn connect(&self, settings: Settings, context: Context) -> Result<Arc<dyn Backend>, Error> {
        Ok(Redis::connect_in(Config::from_settings(settings)?, context).await?)
    }

    async fn diagnose(&self, settings: Settings, context: Context) -> Result<Diagnosis, Error> {
        Ok(diagnose(&Config::from_settings(settings)?, &context).await)
    }
}
