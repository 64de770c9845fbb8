//! Tables: the same data for a page, for Markdown, and for a terminal.

use comfy_table::{CellAlignment, presets::UTF8_HORIZONTAL_ONLY};
use maud::{Markup, html};

/// A table of a report, with its heading and its explanation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReportTable {
    /// Heading above the table.
    pub(crate) title: &'static str,
    /// What the columns mean, and how the figures were taken.
    pub(crate) how: String,
    /// Headings of the columns; the first stands above the names of the rows.
    pub(crate) columns: Vec<&'static str>,
    /// Headings of the columns with sentences; all other columns have figures.
    pub(crate) sentences: &'static [&'static str],
    /// The rows.
    pub(crate) rows: Vec<TableRow>,
}

/// A row of a [`ReportTable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableRow {
    /// First cell: what the row is about.
    pub(crate) name: String,
    /// The other cells, or why there are none.
    pub(crate) cells: Result<Vec<String>, String>,
    /// Colour of the row, so that a bad one is found without reading all.
    pub(crate) mark: Option<RowMark>,
    /// Place on the page with more about the row, as `#id`.
    pub(crate) link: Option<String>,
}

/// The judgement that the colour of a [`TableRow`] shows: good, noted or bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowMark {
    /// All is as promised.
    Good,
    /// Something is to be noted.
    Noted,
    /// Something is wrong.
    Bad,
}

impl TableRow {
    /// A row without a colour and without a link.
    pub(crate) fn new(name: impl Into<String>, cells: Result<Vec<String>, String>) -> Self {
        Self { name: name.into(), cells, mark: None, link: None }
    }
}

impl RowMark {
    /// Class of such a row in the style sheet.
    const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Noted => "noted",
            Self::Bad => "bad",
        }
    }
}

impl ReportTable {
    /// The rows for a page. A narrow screen shows each row as a card, on which each cell says the heading of its column.
    pub(crate) fn html(&self) -> Markup {
        let is_sentence = |column: &&str| self.sentences.contains(column).then_some("sentence");
        html! {
            div.table { table {
                thead { tr { @for column in &self.columns { th scope="col" class=[is_sentence(column)] { (column) } } } }
                tbody { @for row in &self.rows {
                    tr class=[row.mark.map(RowMark::class)] {
                        th scope="row" {
                            @match &row.link { Some(link) => { a href=(link) { (row.name) } } None => { (row.name) } }
                        }
                        @match &row.cells {
                            Ok(cells) => { @for (column, cell) in self.columns.iter().skip(1).zip(cells) {
                                td data-label=(column) class=[is_sentence(column)] { (cell) }
                            } }
                            Err(problem) => { td.problem colspan=(self.columns.len() - 1) { (problem) } }
                        }
                    }
                } }
            } }
        }
    }

    /// The table as Markdown. A row that says why there are no figures keeps the number of columns.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[&str]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
            let missing = " |".repeat(self.columns.len().saturating_sub(cells.len()));
            format!("| {} |{missing}\n", cells.join(" | "))
        };
        let side = |(number, column)| if number == 0 || self.sentences.contains(column) { "---" } else { "--:" };
        let rule: Vec<&str> = self.columns.iter().enumerate().map(side).collect();
        let rows = self.rows.iter().map(|row| line(&row.all()));
        let text: String = [line(&self.columns), line(&rule)].into_iter().chain(rows).collect();
        text.trim_end().to_owned()
    }

    /// The table for a terminal. Rows that say why there are no figures come below it.
    pub(crate) fn text(&self) -> String {
        let mut grid = comfy_table::Table::new();
        grid.load_style(UTF8_HORIZONTAL_ONLY);
        grid.set_header(self.columns.iter().copied());
        let (rows, problems): (Vec<&TableRow>, Vec<&TableRow>) = self.rows.iter().partition(|row| row.cells.is_ok());
        grid.add_rows(rows.iter().map(|row| row.all()));
        for (number, column) in grid.column_iter_mut().enumerate().skip(1) {
            if !self.sentences.contains(&self.columns[number]) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let problems = problems.iter().map(|row| format!("\n{}", row.all().join(": ")));
        grid.to_string() + &problems.collect::<String>()
    }
}

impl TableRow {
    /// All cells of the row.
    fn all(&self) -> Vec<&str> {
        let cells = match &self.cells {
            Ok(cells) => cells.iter().map(String::as_str).collect(),
            Err(problem) => vec![problem.as_str()],
        };
        [vec![self.name.as_str()], cells].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ReportTable {
        let problem = TableRow::new("Redis", Err("failed: it <did> not | start".into()));
        let good = TableRow {
            mark: Some(RowMark::Good),
            link: Some("#run-1".into()),
            ..TableRow::new("ZooKeeper", Ok(vec!["all promises kept".into(), "3".into()]))
        };
        let columns = vec!["servers", "verdict", "grants"];
        ReportTable {
            title: "Runs",
            columns,
            sentences: &["verdict"],
            rows: vec![good, problem],
            ..ReportTable::default()
        }
    }

    #[test]
    fn each_form_has_every_figure_and_every_problem() {
        let table = table();
        for text in [table.html().into_string(), table.markdown(), table.text()] {
            assert!(text.contains("all promises kept") && text.contains("failed: it"), "{text}");
        }
    }

    #[test]
    fn every_line_of_markdown_has_all_columns() {
        let text = table().markdown();
        assert_eq!(text.lines().nth(1), Some("| --- | --- | --: |"));
        for line in text.replace("\\|", "").lines() {
            assert_eq!(line.matches('|').count(), 4, "{line}");
        }
    }

    #[test]
    fn each_cell_of_the_page_says_what_it_is_for_screens_without_room_for_columns() {
        let page = table().html().into_string();
        assert!(page.contains(r#"<td data-label="verdict" class="sentence">all promises kept</td>"#), "{page}");
        assert!(page.contains(r#"<td data-label="grants">3</td>"#), "{page}");
        assert!(page.contains("failed: it &lt;did&gt; not | start"), "{page}");
    }
}
