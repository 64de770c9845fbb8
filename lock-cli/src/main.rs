//! The `lock` program: see `lock --help`.

mod arguments;
mod doctor;
mod elect;
mod escaped;
mod failure;
mod follow;
mod group;
mod guardian;
mod held_lock;
mod killed_group;
mod list;
mod plan;
mod redlock;
mod release;
mod run;
mod service;
mod shown;
mod signals;
mod status;
mod supervision;
mod terminal;
mod watch;

use std::process;

use clap::{Parser, error::ErrorKind};
use lock::Config;
use tokio::runtime::Builder;
use tracing_subscriber::EnvFilter;

use crate::{
    arguments::{Arguments, LockSubcommand, RedlockSubcommand},
    escaped::LogWriter,
    failure::{CONFIG, Failure, USAGE, say},
    service::ServiceConfig,
};

fn main() {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        process::exit(if help { 0 } else { USAGE.into() })
    });
    log(arguments.verbose);
    let status = match start(&arguments) {
        Ok(status) => status,
        Err(failure) => {
            say(&failure);
            failure.status
        }
    };
    process::exit(status.into())
}

fn start(arguments: &Arguments) -> Result<u8, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let status = match &arguments.command {
        LockSubcommand::Run(run) => runtime.block_on(run::run(&ServiceConfig::choose(arguments)?, run)),
        LockSubcommand::Status(status) => {
            runtime.block_on(status::status(ServiceConfig::choose(arguments)?.config, status))
        }
        LockSubcommand::Watch(watch) => runtime.block_on(watch::watch(ServiceConfig::choose(arguments)?.config, watch)),
        LockSubcommand::List(asked) => runtime.block_on(list::list(ServiceConfig::choose(arguments)?.config, asked)),
        LockSubcommand::Release(asked) => {
            release::check(asked)?;
            runtime.block_on(release::release(ServiceConfig::choose(arguments)?.config, asked))
        }
        LockSubcommand::Elect(elect) if elect.observe => {
            runtime.block_on(elect::observe(ServiceConfig::choose(arguments)?.config, elect))
        }
        LockSubcommand::Elect(elect) => runtime.block_on(elect::elect(&ServiceConfig::choose(arguments)?, elect)),
        LockSubcommand::Doctor(asked) => {
            let service = match &asked.service {
                Some(url) => Config::from_url(url)?,
                None => ServiceConfig::choose(arguments)?.config,
            };
            runtime.block_on(doctor::doctor(service, asked.json))
        }
        LockSubcommand::Redlock(order) => runtime.block_on(async {
            let none = || {
                Failure::new(CONFIG, "no deployment is named: give --url or --config, or set LOCK_URL or LOCK_CONFIG")
            };
            let config = ServiceConfig::named(arguments)?.ok_or_else(none)?.config;
            match order {
                RedlockSubcommand::Init { no_holders, reset } => redlock::init(config, *no_holders, *reset).await?,
                RedlockSubcommand::Status { json } => return redlock::status(config, *json).await,
                RedlockSubcommand::Replace { old, new } => redlock::replace(config, old, new).await?,
            }
            Ok(0)
        }),
        LockSubcommand::Guardian { kill_after } => runtime.block_on(guardian::guard(*kill_after)),
    };
    // A resolver that hangs in a thread of its own must not keep the program from ending.
    runtime.shutdown_background();
    status
}

/// Silent unless asked: a script reads what a failure says, not what a client library thinks.
fn log(verbose: u8) {
    let filter = match verbose {
        0 => return,
        // Every target that begins with `lock`: all crates of the workspace.
        1 => "off,lock=debug",
        _ => "trace",
    };
    tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_ansi(false).with_writer(|| LogWriter).init();
}
