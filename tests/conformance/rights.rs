//! The users of docs/rights.md, made on real servers as that page says.

use lock_lab::servers::Redis;

const PAGE: &str = include_str!("../../docs/rights.md");

/// Credentials in a URL, of the user of that name.
pub(crate) const PROGRAM: &str = "program:secret@";

/// Makes the users of that section on a server.
pub(crate) async fn grant(server: &Redis, section: &str) -> Result<(), String> {
    let heading = format!("{section}\n");
    let section = PAGE.split("\n## ").find(|text| text.starts_with(&heading));
    let rules = section.into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("ACL SETUSER "));
    let mut users = 0;
    for rule in rules {
        let words: Vec<_> = rule.split_whitespace().collect();
        let made: Result<(), _> = server.ask("ACL SETUSER", &words).await;
        made.map_err(|error| format!("{rule}: {error}"))?;
        users += 1;
    }
    if users == 0 { Err(format!("docs/rights.md says nothing of {heading}")) } else { Ok(()) }
}
