//! The users of docs/rights.md, made on real servers as that page says.

use etcd_client::{Client, Permission};

use super::{Redis, until::RetryLimit};
use crate::LabError;

const PAGE: &str = include_str!("../../../docs/rights.md");

/// Settings for who asks Sentinels.
pub(crate) const WATCHER: &str = "sentinel_username=watcher&sentinel_password=secret";

/// The user of docs/rights.md, with the password.
pub(crate) const USER: &str = "program:secret";

/// The administrator of etcd on that page, and the password.
pub(crate) const ADMINISTRATOR: (&str, &str) = ("root", "administrator");

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
    for rule in rules(section, "ACL SETUSER ")? {
        () = server.ask("ACL SETUSER", &rule).await?;
    }
    Ok(())
}

/// Makes the users of etcd, and has it ask for them. Servers that elect a leader meanwhile are asked again.
pub(crate) async fn grant_in_etcd(client: &mut Client) -> Result<(), LabError> {
    let limit = RetryLimit::with("the users of etcd");
    let mut rules = rules("etcd", "etcdctl ")?.into_iter();
    let mut next = rules.next();
    while let Some(rule) = &next {
        let done = match rule.as_slice() {
            ["user", "add", user] => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                client.user_add(user, password, None).await.map(drop)
            }
            ["user", "grant-role", user, role] => client.user_grant_role(*user, *role).await.map(drop),
            ["role", "add", role] => client.role_add(*role).await.map(drop),
            ["role", "grant-permission", "--prefix=true", role, "readwrite", prefix] => {
                let permission = Permission::read_write(*prefix).with_prefix();
                client.role_grant_permission(*role, permission).await.map(drop)
            }
            ["auth", "enable"] => client.auth_enable().await.map(drop),
            _ => return Err(LabError::run(format!("docs/rights.md has a line that nobody carries out: {rule:?}"))),
        };
        match done {
            // One whose answer was lost may be carried out.
            Err(error) if !error.to_string().contains("already exists") => {
                limit.again(format!("a line of docs/rights.md, {rule:?}: {error}")).await?;
            }
            _ => next = rules.next(),
        }
    }
    Ok(())
}

/// The words of the lines of that section that begin so, each without its beginning.
fn rules(section: &str, beginning: &str) -> Result<Vec<Vec<&'static str>>, LabError> {
    let heading = format!("{section}\n");
    let text = PAGE.split("\n## ").find(|text| text.starts_with(&heading));
    let lines = text.into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix(beginning));
    let rules: Vec<_> = lines.map(|line| line.split_whitespace().collect()).collect();
    if rules.is_empty() {
        return Err(LabError::run(format!("docs/rights.md says nothing of {section}")));
    }
    Ok(rules)
}
