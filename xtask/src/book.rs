//! The pages: whether every link leads somewhere, and whether the book has them all.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// The root of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// What a page says: where its links and pictures lead, and the anchors of its headings.
struct Page {
    file: PathBuf,
    links: Vec<String>,
    /// Of the headings, their levels and their anchors.
    headings: Vec<(HeadingLevel, String)>,
}

impl Page {
    fn read(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let (mut links, mut headings, mut heading) = (Vec::new(), Vec::new(), None);
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    links.push(dest_url.to_string());
                }
                Event::Start(Tag::Heading { level, .. }) => heading = Some((level, String::new())),
                Event::End(TagEnd::Heading(_)) => headings.extend(heading.take()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some((_, title)) = &mut heading {
                        title.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        headings.iter_mut().for_each(|(_, title)| *title = anchor(title));
        Self { file, links, headings }
    }

    /// The links that lead nowhere, each with what is wrong with it.
    fn broken(&self) -> Vec<String> {
        let local = self.links.iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
        let broken = local.filter_map(|link| Some(format!("{}: {link}: {}", self.file.display(), self.problem(link)?)));
        broken.collect()
    }

    fn problem(&self, link: &str) -> Option<&'static str> {
        let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
        let target = if path.is_empty() { self.file.clone() } else { self.file.with_file_name(path) };
        if !target.exists() {
            return Some("there is no such file");
        }
        let anchor = anchor?;
        let is_there = match target.extension().and_then(|extension| extension.to_str()) {
            Some("md") => Self::read(target).headings.iter().any(|(_, there)| there == anchor),
            Some("html") => fs::read_to_string(&target).unwrap().contains(&format!(" id=\"{anchor}\"")),
            _ => false,
        };
        (!is_there).then_some("there is no such heading")
    }
}

/// The anchor of a heading, as mdBook and code hosts make it.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
    kept.collect::<String>().trim().replace(' ', "-").to_lowercase()
}

/// The pages below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|entry| match entry.extension() {
        _ if entry.is_dir() => pages(&entry),
        Some(extension) if extension == "md" => vec![entry],
        _ => Vec::new(),
    });
    found.collect()
}

/// The pages of the book, and those at the roots of the workspace and of its crates.
fn all_pages() -> Vec<Page> {
    let crates = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let files = [root().to_path_buf()].into_iter().chain(crates).flat_map(|folder| {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|entry| entry.extension().is_some_and(|extension| extension == "md")).collect::<Vec<_>>()
    });
    let mut files: BTreeSet<PathBuf> = files.collect();
    files.extend(pages(&root().join("docs")));
    files.into_iter().map(Page::read).collect()
}

#[test]
fn every_link_between_the_pages_leads_somewhere() {
    let pages = all_pages();
    assert!(pages.iter().any(|page| page.file.ends_with("docs/decisions/0001-limits-in-time-are-the-cores.md")));
    let broken: Vec<String> = pages.iter().flat_map(Page::broken).collect();
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn the_book_lists_each_of_its_pages_once() {
    let docs = root().join("docs");
    let summary = Page::read(docs.join("SUMMARY.md"));
    let mut listed: Vec<PathBuf> =
        summary.links.iter().filter(|link| !link.is_empty()).map(|link| docs.join(link)).collect();
    listed.sort();
    let mut there = pages(&docs);
    there.retain(|page| *page != summary.file);
    there.sort();
    assert_eq!(listed, there, "docs/SUMMARY.md, and the pages that are there");
    for page in there.into_iter().map(Page::read) {
        let titles = page.headings.iter().filter(|(level, _)| *level == HeadingLevel::H1).count();
        assert_eq!(titles, 1, "{} has one title", page.file.display());
    }
}

#[test]
fn anchors_are_those_of_code_hosts() {
    assert_eq!(anchor("Redis, `strategy=plain`"), "redis-strategyplain");
    assert_eq!(anchor("Other people's bugs, tried on us"), "other-peoples-bugs-tried-on-us");
}
