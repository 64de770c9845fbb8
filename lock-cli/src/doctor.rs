//! `lock doctor`.

use std::io::{self, Write};

use lock::{Config, Diagnosis, Finding, Severity};
use serde::Serialize;

use crate::{
    escaped::{json, plain},
    failure::{Failure, UNAVAILABLE},
};

/// Something has to be repaired.
const PROBLEMS: u8 = 1;

/// A diagnosis as the JSON object of `lock doctor --json`, whose help is the contract.
#[derive(Debug, Serialize)]
struct DiagnosisJson<'a> {
    url: String,
    reached: bool,
    facts: Vec<FactJson<'a>>,
    findings: Vec<FindingJson<'a>>,
}

/// One fact within a [`DiagnosisJson`].
#[derive(Debug, Serialize)]
struct FactJson<'a> {
    subject: &'a str,
    what: &'a str,
    value: &'a str,
}

/// One finding within a [`DiagnosisJson`].
#[derive(Debug, Serialize)]
struct FindingJson<'a> {
    severity: String,
    key: &'a str,
    subject: &'a str,
    what: &'a str,
    cure: &'a str,
}

/// Looks at the service of `config`, and prints what is seen and what is wrong.
pub(crate) async fn doctor(config: Config, as_json: bool) -> Result<u8, Failure> {
    let url = config.to_string();
    let diagnosis = config.diagnose().await?;
    let status = match &diagnosis {
        nobody if !nobody.is_reached() => UNAVAILABLE,
        ill if ill.has_problems() => PROBLEMS,
        _ => 0,
    };
    let mut out = io::stdout().lock();
    let written = match as_json {
        true => writeln!(out, "{}", json(&DiagnosisJson::new(url, &diagnosis))),
        false => write(&mut out, &url, &diagnosis),
    };
    match written {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(status),
        written => Ok(written.map(|()| status)?),
    }
}

fn write(out: &mut impl Write, url: &str, diagnosis: &Diagnosis) -> io::Result<()> {
    writeln!(out, "{}", plain(url))?;
    let width = |part: fn(&lock::Fact) -> &str| {
        diagnosis.facts.iter().map(|fact| part(fact).chars().count()).max().unwrap_or_default()
    };
    let (subjects, whats) = (width(|fact| &fact.subject), width(|fact| &fact.what));
    for fact in &diagnosis.facts {
        let (subject, what, value) = (plain(&fact.subject), plain(&fact.what), plain(&fact.value));
        writeln!(out, "  {subject:subjects$}  {what:whats$}  {value}")?;
    }
    for Finding { severity, key, subject, what, cure, .. } in &diagnosis.findings {
        writeln!(out, "\n{severity} {key}: {}", plain(subject))?;
        writeln!(out, "  {}", plain(what))?;
        writeln!(out, "  To do: {}", plain(cure))?;
    }
    let count = |of: Severity| diagnosis.findings.iter().filter(|finding| finding.severity == of).count();
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    writeln!(out, "\n{}, {}", counted(problems, "problem"), counted(warnings, "warning"))
}

impl<'a> DiagnosisJson<'a> {
    fn new(url: String, diagnosis: &'a Diagnosis) -> Self {
        let fact = |fact: &'a lock::Fact| FactJson { subject: &fact.subject, what: &fact.what, value: &fact.value };
        let finding = |finding: &'a Finding| FindingJson {
            severity: finding.severity.to_string(),
            key: finding.key,
            subject: &finding.subject,
            what: &finding.what,
            cure: &finding.cure,
        };
        Self {
            url,
            reached: diagnosis.is_reached(),
            facts: diagnosis.facts.iter().map(fact).collect(),
            findings: diagnosis.findings.iter().map(finding).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn diagnosis() -> Diagnosis {
        let mut diagnosis = Diagnosis::new();
        diagnosis.answered("h:1", Duration::from_millis(2), None);
        diagnosis.fact("h:1", "version", "7\u{1b}[2J");
        diagnosis.find(Finding::problem("is-a-replica", "h:1", "It is one.", "Name the primary."));
        diagnosis.find(Finding::note("n", "h:2", "w\u{9b}", "c"));
        diagnosis
    }

    #[test]
    fn people_see_the_facts_and_then_each_finding_with_what_to_do() {
        let mut out = Vec::new();
        write(&mut out, "redis://h:1", &diagnosis()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "redis://h:1\n  h:1  connected in  2.0ms\n  h:1  version       7\\u{1b}[2J\n\nproblem is-a-replica: h:1\n  It is \
             one.\n  To do: Name the primary.\n\nnote n: h:2\n  w\\u{9b}\n  To do: c\n\n1 problem, 0 warnings\n"
        );
    }

    #[test]
    fn the_keys_for_programs_are_these() {
        let facts = r#"[{"subject":"h:1","what":"connected in","value":"2.0ms"},{"subject":"h:1","what":"version","value":"7\u001b[2J"}]"#;
        let first = r#"{"severity":"problem","key":"is-a-replica","subject":"h:1","what":"It is one.","cure":"Name the primary."}"#;
        let second = r#"{"severity":"note","key":"n","subject":"h:2","what":"w\u009b","cure":"c"}"#;
        let expected =
            format!(r#"{{"url":"redis://h:1","reached":true,"facts":{facts},"findings":[{first},{second}]}}"#);
        assert_eq!(json(&DiagnosisJson::new("redis://h:1".to_owned(), &diagnosis())), expected);
    }
}
