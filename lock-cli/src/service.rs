//! Which lock service is used, and how a command is told of it.

use std::{ffi::OsString, path};

use lock::{Config, LOCK_CONFIG, LOCK_PASSWORD, LOCK_URL};
use tokio::process::Command;

use crate::{
    arguments::Arguments,
    failure::{CONFIG, Failure, notice},
};

/// The backend that needs nothing.
const LOCAL: &str = "local://";

const NOT_NAMED: &str = "no lock service is named by --url, --config, LOCK_URL, LOCK_CONFIG or /etc/lock.toml";

/// The configuration of the lock service, from the arguments or the environment.
#[derive(Debug)]
pub(crate) struct ServiceConfig {
    pub(crate) config: Config,
}

impl ServiceConfig {
    /// The one of the command line, if it names one.
    fn asked_for(arguments: &Arguments) -> Result<Option<Self>, Failure> {
        let config = match (&arguments.url, &arguments.config) {
            (Some(url), _) => Config::from_url(url)?,
            (None, Some(file)) => Config::from_file(file)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(Self { config: config.with_password_of_env()? }))
    }

    /// The one of the command line, else of the environment, if that names one.
    pub(crate) fn named(arguments: &Arguments) -> Result<Option<Self>, Failure> {
        if let Some(service) = Self::asked_for(arguments)? {
            return Ok(Some(service));
        }
        Ok(Config::from_env()?.map(|config| Self { config }))
    }

    /// The one of the command line, else of the environment, else this machine.
    pub(crate) fn choose(arguments: &Arguments) -> Result<Self, Failure> {
        if let Some(service) = Self::named(arguments)? {
            return Ok(service);
        }
        // Safeguard: who requires a service gets no other lock (lock run)
        if arguments.service_required {
            return Err(Failure::new(
                CONFIG,
                NOT_NAMED.to_owned() + ", and --service-required or LOCK_REQUIRE_SERVICE asks for one",
            ));
        }
        // A host of a cluster that lacks its LOCK_URL must not go unnoticed, whether anybody looks at a terminal or not.
        notice(format_args!(
            "{NOT_NAMED}: using {LOCAL}, the locks of this user on this machine alone (LOCK_URL={LOCAL} or --quiet says that \
             this is meant)"
        ));
        Ok(Self { config: Config::from_url(LOCAL)? })
    }

    /// Has those who look at a lock see who holds it: `payload`, else what runs under the lock.
    pub(crate) fn held_by(self, payload: Option<&str>, command: &[OsString]) -> Self {
        let config = match (payload, command.first()) {
            (Some(payload), _) => self.config.with_payload(payload.as_bytes()),
            (None, Some(program)) => self.config.with_command(program),
            (None, None) => self.config,
        };
        Self { config }
    }

    /// Names it to a command, without user and password: the environment of a process is open to all that it starts, and
    /// gets written into logs. What stands in a file, which only some may read, stays there; a URL that lacks it would be
    /// read before the file, and so it is left out.
    pub(crate) fn name_to(&self, command: &mut Command) {
        // Safeguard: a command does not inherit the password (lock run)
        command.env_remove(LOCK_PASSWORD);

        // Safeguard: a command gets no credentials (lock run)
        let public = self.config.without_credentials().to_url();
        let is_complete = public == self.config.to_url();
        let file = self.config.file();
        if let Some(file) = file {
            command.env(LOCK_CONFIG, path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        }
        // Safeguard: a URL that lacks what stands in a file is not given to the command (lock run)
        if is_complete || file.is_none() {
            command.env(LOCK_URL, public);
        } else {
            command.env_remove(LOCK_URL);
        }
    }
}
