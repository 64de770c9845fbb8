//! A report as one page that needs nothing else.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Report, Table, summary, tables};

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1d2430; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #d8dde6; text-align: right; }
th { font-weight: 600; color: #4a5568; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; font-weight: 600; }
td.problem { text-align: left; color: #8a4b08; }
p.how { color: #4a5568; max-width: 60rem; }
svg { max-width: 100%; height: auto; margin: 1rem 0; }
";

impl Report {
    /// The report as one HTML page, its pictures inside.
    #[must_use]
    pub fn html(&self) -> String {
        let sections = tables(self).into_iter().zip(self.pictures());
        page(
            "The backends side by side",
            html! {
                (rows(&summary(self)))
                p { (self.circumstances()) }
                @for (table, picture) in sections {
                    h2 { (table.title) }
                    (rows(&table))
                    (PreEscaped(picture.svg))
                    p.how { (emphasis(&table.how)) }
                }
            },
        )
    }
}

/// A whole page under this heading.
#[allow(clippy::needless_pass_by_value)] // A page is the end of its body.
pub(crate) fn page(title: &str, body: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (body)
            }
        }
    };
    page.into_string()
}

/// A table with its figures.
pub(crate) fn rows(table: &Table) -> Markup {
    rows_with(table, |_| "", |_| None)
}

/// A table with its figures, a class for each row, and a link for the first cell of those that have one.
pub(crate) fn rows_with(
    table: &Table,
    class: impl Fn(usize) -> &'static str,
    link: impl Fn(usize) -> Option<String>,
) -> Markup {
    html! {
        table {
            thead { tr { @for column in &table.columns { th { (column) } } } }
            tbody {
                @for (number, row) in table.rows.iter().enumerate() {
                    tr class=[Some(class(number)).filter(|class| !class.is_empty())] {
                        @for (column, cell) in row.iter().take(if row.len() == 2 { 1 } else { row.len() }).enumerate() {
                            td {
                                @match link(number).filter(|_| column == 0) {
                                    Some(link) => { a href=(link) { (cell) } }
                                    None => { (cell) }
                                }
                            }
                        }
                        @if let [_, problem] = row.as_slice() {
                            td.problem colspan=(table.columns.len() - 1) { (problem) }
                        }
                    }
                }
            }
        }
    }
}

/// The texts mark words as Markdown does, with asterisks and back quotes.
pub(crate) fn emphasis(text: &str) -> Markup {
    html! {
        @for (odd, part) in text.split('*').enumerate() {
            @if odd % 2 == 1 { em { (part) } } @else { (code(part)) }
        }
    }
}

fn code(text: &str) -> Markup {
    html! {
        @for (odd, part) in text.split('`').enumerate() {
            @if odd % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
