//! The users of docs/rights.md, made on real servers as that page says.

use super::Redis;
use crate::LabError;

const PAGE: &str = include_str!("../../../docs/rights.md");

/// Settings for who asks Sentinels.
pub(crate) const WATCHER: &str = "sentinel_username=watcher&sentinel_password=secret";

/// The user of docs/rights.md, with the password.
pub(crate) const USER: &str = "program:secret";

/// What a URL says before the servers, for a client that signs in as that page says.
pub(crate) fn user(signs_in: bool) -> String {
    if signs_in { format!("{USER}@") } else { String::new() }
}

/// Makes the users of that section on these servers.
pub(crate) async fn grant_all(servers: &[Redis], section: &str) -> Result<(), LabError> {
    for server in servers {
        grant(server, section).await?;
    }
    Ok(())
}

/// Makes the users of that section on a server.
pub(crate) async fn grant(server: &Redis, section: &str) -> Result<(), LabError> {
    let heading = format!("{section}\n");
    let text = PAGE.split("\n## ").find(|text| text.starts_with(&heading));
    let rules: Vec<_> =
        text.into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("ACL SETUSER ")).collect();
    if rules.is_empty() {
        return Err(LabError::run(format!("docs/rights.md says nothing of {section}")));
    }
    for rule in rules {
        () = server.ask("ACL SETUSER", &rule.split_whitespace().collect::<Vec<_>>()).await?;
    }
    Ok(())
}
