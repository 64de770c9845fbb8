//! A document: what a report says, once for all of its forms.

use std::{
    fs,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use lock_core::clock::wall_micros;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

use super::ReportTable;
use crate::LabError;

const STYLE: &str = include_str!("page.css");

/// The contents of a report, from its title to its end, written out as Markdown or as a page.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) title: &'static str,
    pub(crate) blocks: Vec<DocumentBlock>,
}

/// One block of a [`Document`]: a heading, a paragraph, a list, a table or a picture. Texts and lists mark words as
/// Markdown does, with asterisks and back quotes.
#[derive(Debug)]
pub(crate) enum DocumentBlock {
    /// A heading.
    Section(String),
    /// A heading below that, and where links lead that mean it.
    Part { title: String, id: String },
    /// A paragraph.
    Text(String),
    /// A paragraph that begins with something that matters, which has no marks.
    Strong { beginning: String, rest: String },
    /// A list.
    List(Vec<String>),
    /// A table, with its heading before it and its explanation after it.
    Table(ReportTable),
    /// A picture that is a file of its own beside the page.
    Picture { file: &'static str, title: &'static str, svg: Markup },
    /// A picture or a legend that only a page can show.
    Drawn(Markup),
}

impl Document {
    /// Writes `report.json` with this data, `report.md`, `index.html`, and the pictures that are files of their own. The
    /// directory is made if need be.
    pub(crate) fn write(&self, dir: &Path, json: &str) -> Result<(), LabError> {
        fs::create_dir_all(dir).map_err(|source| LabError::io(format!("creating {}", dir.display()), source))?;
        let put = |name: &str, text: &str| {
            let file = dir.join(name);
            fs::write(&file, text).map_err(|source| LabError::io(format!("writing {}", file.display()), source))
        };
        put("report.json", json)?;
        put("report.md", &self.markdown())?;
        put("index.html", &self.html())?;
        self.blocks.iter().try_for_each(|block| match block {
            DocumentBlock::Picture { file, svg, .. } => put(file, &svg.0),
            _ => Ok(()),
        })
    }

    /// The document as one page that needs nothing else.
    pub(crate) fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    @for block in &self.blocks { (block.html()) }
                }
            }
        };
        page.into_string()
    }

    /// The document as Markdown, with links to the pictures that are files.
    pub(crate) fn markdown(&self) -> String {
        let blocks: String =
            self.blocks.iter().filter_map(DocumentBlock::markdown).map(|text| format!("\n{text}\n")).collect();
        format!("# {}\n{blocks}", self.title)
    }
}

impl DocumentBlock {
    fn html(&self) -> Markup {
        html! {
            @match self {
                Self::Section(title) => { h2 { (title) } }
                Self::Part { title, id } => { h3 id=(id) { (title) } }
                Self::Text(text) => { p { (marked(text)) } }
                Self::Strong { beginning, rest } => { p { strong { (beginning) } " " (marked(rest)) } }
                Self::List(items) => { ul { @for item in items { li { (marked(item)) } } } }
                Self::Table(table) => { h2 { (table.title) } (table.html()) p { (marked(&table.how)) } }
                Self::Picture { svg, .. } | Self::Drawn(svg) => { (svg) }
            }
        }
    }

    fn markdown(&self) -> Option<String> {
        Some(match self {
            Self::Section(title) => format!("## {title}"),
            Self::Part { title, .. } => format!("### {title}"),
            Self::Text(text) => text.clone(),
            Self::Strong { beginning, rest } => format!("**{beginning}** {rest}").trim_end().to_owned(),
            Self::List(items) => items.iter().map(|item| format!("- {item}")).collect::<Vec<_>>().join("\n"),
            Self::Table(table) => format!("## {}\n\n{}\n\n{}", table.title, table.markdown(), table.how),
            Self::Picture { file, title, .. } => format!("![{title}]({file})"),
            Self::Drawn(_) => return None,
        })
    }
}

fn marked(text: &str) -> Markup {
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

/// Now, by the wall clock, in UTC and to the second.
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(wall_micros())).to_string()
}

/// A report as data that people can read, too.
pub(crate) fn json(report: &impl Serialize) -> Result<String, LabError> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| LabError::io("writing the report as JSON", error.into()))?;
    Ok(json + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards what a page needs for a narrow window and for a telephone, as far as the text of a page can show.
    #[test]
    fn a_page_fits_a_narrow_window_and_a_telephone() {
        let page = Document { title: "A page", blocks: Vec::new() }.html();
        assert!(page.contains(r#"name="viewport" content="width=device-width, initial-scale=1""#));
        assert!(!page.contains("nowrap"), "every cell may wrap");
        assert!(page.contains("svg { max-width: 100%; height: auto;"), "pictures scale");
        let (_, telephone) = page.split_once("@media (max-width: 600px)").expect("a layout for telephones");
        for rule in ["thead { display: none; }", "content: attr(data-label)"] {
            assert!(telephone.contains(rule), "rows are cards there: {rule}");
        }
    }

    #[test]
    fn marks_are_those_of_markdown() {
        assert_eq!(marked("a *b* `c`").into_string(), "a <em>b</em> <code>c</code>");
    }

    #[test]
    fn what_only_a_page_can_show_is_left_out_of_markdown() {
        let picture = DocumentBlock::Picture { file: "waits.svg", title: "Waits", svg: html! { svg {} } };
        let blocks = vec![DocumentBlock::Text("one".into()), DocumentBlock::Drawn(html! { svg {} }), picture];
        let document = Document { title: "Title", blocks };
        assert_eq!(document.markdown(), "# Title\n\none\n\n![Waits](waits.svg)\n");
        assert_eq!(document.html().matches("<svg>").count(), 2);
    }
}
