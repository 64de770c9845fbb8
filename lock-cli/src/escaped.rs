//! What comes from servers and from other users, made fit for a terminal.
//!
//! Control characters, those of C1 among them, can play with a terminal; others turn the order of what is shown around, break
//! its lines, or cannot be seen at all. All of these are written as the escapes of their numbers, in text and in JSON.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

/// Whether `c` does something else than to be seen. The joiners of scripts and of emoji are left alone: they change nothing
/// but the looks of their neighbours.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks, embeddings, overrides and isolates of the direction of writing.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Separators of lines and paragraphs.
            | '\u{2028}' | '\u{2029}'
            // Without any width.
            | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// `text` on one line, as `\u{1b}` where a character is not to reach a terminal.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hidden(c) {
            let _ = write!(escaped, "{}", c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// `value` on one line, as JSON that reads back as it is.
pub(crate) fn json(value: &impl Serialize) -> String {
    let mut out = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut out, EscapingFormatter));
    written.map(|()| String::from_utf8_lossy(&out).into_owned()).unwrap_or_default()
}

/// A JSON formatter that also escapes characters that a terminal would hide or act on.
#[derive(Debug)]
struct EscapingFormatter;

impl Formatter for EscapingFormatter {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        // Safeguard: JSON is fit for a terminal (command line)
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_hidden(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_plays_with_a_terminal_is_shown_by_its_number() {
        assert_eq!(
            plain("a\u{1b}[2J\u{9b}2J\u{7f}\n\u{202e}b\u{2066}"),
            r"a\u{1b}[2J\u{9b}2J\u{7f}\u{a}\u{202e}b\u{2066}"
        );
        assert_eq!(plain("grüße, שלום 🧑\u{200d}🚀 \"'\\"), "grüße, שלום 🧑\u{200d}🚀 \"'\\");
        assert_eq!(
            json(&"a\u{1b}[2J\u{9b}\u{7f}\u{202e}\"\u{e0041}ü"),
            r#""a\u001b[2J\u009b\u007f\u202e\"\udb40\udc41ü""#
        );
    }

    proptest! {
        #[test]
        fn json_reads_back_and_nothing_hidden_is_in_it_or_in_text(text in any::<String>()) {
            let shown = json(&text);
            prop_assert!(!shown.contains(is_hidden) && !plain(&text).contains(is_hidden));
            prop_assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
    }
}
