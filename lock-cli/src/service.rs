//! Which lock service is used, and how a command is told of it.

use std::{
    env,
    path::{self, PathBuf},
};

use lock::{Config, Error, LOCK_CONFIG, LOCK_PASSWORD, LOCK_URL};
use tokio::process::Command;

use crate::{
    arguments::Arguments,
    failure::{Failure, say},
};

/// The backend that needs nothing.
const LOCAL: &str = "local://";

/// The configuration of the lock service, from the arguments or the environment, and the file that has it.
#[derive(Debug)]
pub(crate) struct ServiceConfig {
    pub(crate) config: Config,
    /// Where it is configured, unless by a URL.
    file: Option<PathBuf>,
}

impl ServiceConfig {
    /// The one of the command line, if it names one.
    fn asked_for(arguments: &Arguments) -> Result<Option<Self>, Failure> {
        if let Some(url) = &arguments.url {
            return Ok(Some(Self { config: Config::from_url(url)?.with_password_of_env()?, file: None }));
        }
        let file = arguments.config.as_ref();
        Ok(file
            .map(|file| {
                let config = Config::from_file(file)?.with_password_of_env()?;
                Ok::<_, Error>(Self { config, file: Some(file.clone()) })
            })
            .transpose()?)
    }

    /// The one of the command line, else of the environment, if that names one.
    pub(crate) fn named(arguments: &Arguments) -> Result<Option<Self>, Failure> {
        if let Some(service) = Self::asked_for(arguments)? {
            return Ok(Some(service));
        }
        let set = |variable| env::var_os(variable).filter(|value| !value.is_empty());
        let file = set(LOCK_CONFIG).filter(|_| set(LOCK_URL).is_none()).map(PathBuf::from);
        Ok(Config::from_env()?.map(|config| Self { config, file }))
    }

    /// The one of the command line, else of the environment, else this machine.
    pub(crate) fn choose(arguments: &Arguments) -> Result<Self, Failure> {
        if let Some(service) = Self::named(arguments)? {
            return Ok(service);
        }
        // Always: a host of a cluster that lacks its LOCK_URL must not go unnoticed.
        say(format_args!(
            "no lock service is named by --url, --config, LOCK_URL or LOCK_CONFIG: using {LOCAL}, the locks of this user on \
             this machine alone"
        ));
        Ok(Self { config: Config::from_url(LOCAL)?, file: None })
    }

    /// Names it to a command, without user and password: the environment of a process is open to all that it starts, and
    /// gets written into logs. What stands in a file, which only some may read, stays there; a URL that lacks it would be
    /// read before the file, and so it is left out.
    pub(crate) fn name_to(&self, command: &mut Command) {
        command.env_remove(LOCK_PASSWORD);
        // Safeguard: a command gets no credentials (lock run)
        let public = self.config.without_credentials().to_url();
        let is_complete = public == self.config.to_url();
        if let Some(file) = &self.file {
            command.env(LOCK_CONFIG, path::absolute(file).unwrap_or_else(|_| file.clone()));
        }
        // Safeguard: a URL that lacks what stands in a file is not given to the command (lock run)
        if is_complete || self.file.is_none() {
            command.env(LOCK_URL, public);
        } else {
            command.env_remove(LOCK_URL);
        }
    }
}
