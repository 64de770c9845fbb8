//! The `lock` program: see `lock --help`.

mod ancestors;
mod arguments;
mod at_least;
mod doctor;
mod elect;
mod escaped;
mod failure;
mod follow;
mod generated;
mod group;
mod guardian;
mod held_lock;
mod killed_group;
mod list;
mod log;
mod plan;
mod process;
mod redlock;
mod release;
mod run;
mod service;
mod shown;
mod signals;
mod status;
mod supervision;
mod terminal;
mod tips;
mod waiting;
mod watch;

use clap::{Parser, error::ErrorKind};
use lock::Config;
use tokio::runtime::Builder;

use crate::{
    arguments::{Arguments, LockSubcommand, RedlockSubcommand},
    failure::{CONFIG, Failure, USAGE, be_quiet},
    service::ServiceConfig,
};

fn main() {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        let error = tips::with_tips(error);
        let _ = error.print();
        let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        std::process::exit(if help { 0 } else { USAGE.into() })
    });
    if arguments.quiet {
        be_quiet();
    }
    // `lock run` speaks for its guardian.
    if !matches!(arguments.command, LockSubcommand::Guardian { .. }) {
        log::start(arguments.verbose);
    }
    let status = start(&arguments).unwrap_or_else(Failure::said);
    std::process::exit(status.into())
}

fn start(arguments: &Arguments) -> Result<u8, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let status = match &arguments.command {
        LockSubcommand::Run(run) => {
            let service = ServiceConfig::choose(arguments)?.held_by(run.payload.as_deref(), &run.command);
            runtime.block_on(run::run(&service, run))
        }
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
        LockSubcommand::Elect(elect) => {
            let service = ServiceConfig::choose(arguments)?.held_by(elect.payload.as_deref(), &elect.command);
            runtime.block_on(elect::elect(&service, elect))
        }
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
        LockSubcommand::Completions { shell } => generated::completions(*shell).map(|()| 0),
        LockSubcommand::Man { directory } => generated::man(directory.as_deref()).map(|()| 0),
        LockSubcommand::Guardian { kill_after } => runtime.block_on(guardian::guard(*kill_after)),
    };
    // A resolver that hangs in a thread of its own must not keep the program from ending.
    runtime.shutdown_background();
    status
}
