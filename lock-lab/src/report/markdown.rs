//! A report as Markdown.

use std::fmt::Write;

use super::{Report, Table, summary, tables};

impl Report {
    /// The report as Markdown, with links to the pictures beside it.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text =
            format!("# The backends side by side\n\n{}\n\n{}\n", table(&summary(self)), self.circumstances());
        for (table, picture) in tables(self).iter().zip(self.pictures()) {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n## {}\n\n{}\n\n![{}]({}.svg)\n\n{}\n",
                table.title,
                self::table(table),
                picture.title,
                picture.id,
                table.how
            );
        }
        text
    }

    /// Where and when, and what the figures may be used for.
    #[must_use]
    pub fn circumstances(&self) -> String {
        let versions: Vec<String> = self
            .backends
            .iter()
            .filter(|backend| !backend.version.is_empty())
            .map(|backend| format!("{} on {}", backend.title, backend.version))
            .collect();
        format!(
            "Taken on {} in {:.0} s: {}. \
             {}, version {}{}. Clients and servers share this machine, over loopback: compare the backends with one \
             another, not these figures with those of another machine.",
            self.date,
            self.seconds,
            self.machine,
            if versions.is_empty() { "No servers".into() } else { versions.join(", ") },
            self.settings.version,
            if self.settings.optimised { "" } else { " built without optimisations" },
        )
    }
}

/// One table. A row that says why there are no figures keeps the number of columns.
pub(crate) fn table(table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        let missing = " |".repeat(table.columns.len().saturating_sub(cells.len()));
        format!("| {} |{missing}\n", cells.join(" | "))
    };
    let heading: Vec<String> = table.columns.iter().map(ToString::to_string).collect();
    let rule: Vec<String> = (0..heading.len()).map(|column| if column == 0 { "---" } else { "--:" }.into()).collect();
    let mut text = line(&heading) + &line(&rule);
    table.rows.iter().for_each(|row| text.push_str(&line(row)));
    text.truncate(text.trim_end().len());
    text
}
