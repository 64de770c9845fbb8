//! The `lock` program: see `lock --help`.

mod arguments;
mod failure;
mod group;
mod guardian;
mod run;
mod signals;
mod status;
mod supervision;
mod terminal;

use std::{io, process};

use clap::{Parser, error::ErrorKind};
use lock::Config;
use tracing_subscriber::EnvFilter;

use crate::{
    arguments::{Arguments, Command},
    failure::{CONFIG, Failure, USAGE},
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
            eprintln!("lock: {failure}");
            failure.status
        }
    };
    process::exit(status.into())
}

fn start(arguments: &Arguments) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = match &arguments.command {
        Command::Run(run) => runtime.block_on(run::run(backend(arguments)?, run)),
        Command::Status(status) => runtime.block_on(status::status(backend(arguments)?, &status.name)),
        Command::Guardian { kill_after } => runtime.block_on(guardian::guard(*kill_after)),
    };
    // A resolver that hangs in a thread of its own must not keep the program from ending.
    runtime.shutdown_background();
    status
}

/// The backend that was asked for.
fn backend(arguments: &Arguments) -> Result<Config, Failure> {
    if let Some(url) = &arguments.url {
        return Ok(Config::from_url(url)?);
    }
    if let Some(file) = &arguments.config {
        return Ok(Config::from_file(file)?);
    }
    Config::from_env()?.ok_or_else(|| {
        let schemes: Vec<_> = lock::BACKENDS.iter().map(|kind| kind.example).collect();
        Failure::new(
            CONFIG,
            format!(
                "no lock service is configured; give --url or --config, or set LOCK_URL or LOCK_CONFIG; a URL is as {}",
                schemes.join(", ")
            ),
        )
    })
}

/// Silent unless asked: a script reads what a failure says, not what a client library thinks.
fn log(verbose: u8) {
    let filter = match verbose {
        0 => return,
        1 => "off,lock=debug,lock_core=debug,lock_zk=debug,lock_redis=debug,lock_redlock=debug",
        _ => "trace",
    };
    tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(io::stderr).init();
}
