//! The README's commands are typed as they stand there, and print what stands there.

use std::{fs, process::Stdio};

use tokio::process::Command;

use crate::common::within;

/// A command as it is typed, and the lines that it prints. `...` in a line stands for anything.
struct Typed {
    command: String,
    expected: Vec<String>,
}

/// The commands of all blocks of a console.
fn typed(page: &str) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    let mut in_console = false;
    for line in page.lines() {
        match line.strip_prefix("$ ") {
            _ if line == "```console" => in_console = true,
            _ if line == "```" => in_console = false,
            _ if !in_console => {}
            Some(command) => all.push(Typed { command: command.to_owned(), expected: Vec::new() }),
            None => all.last_mut().expect("a command comes first").expected.push(line.to_owned()),
        }
    }
    all
}

/// Whether `line` is like `pattern`, in which `...` stands for anything.
fn is_like(pattern: &str, line: &str) -> bool {
    let Some((first, rest)) = pattern.split_once("...") else { return pattern == line };
    let Some(mut left) = line.strip_prefix(first) else { return false };
    let mut parts = rest.split("...").peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        let Some(found) = left.find(part) else { return false };
        left = &left[found + part.len()..];
    }
    true
}

#[tokio::test]
async fn the_commands_of_the_readme_print_what_stands_there() {
    const MARK: &str = "------ next ------";
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).expect("a README");
    let all = typed(&page);
    assert!(all.len() > 5, "the README has {} commands", all.len());
    // The status of a command is that of the one before, as for somebody who types them.
    let lines: Vec<_> =
        all.iter().map(|typed| format!("{}\nstatus=$?; echo '{MARK}'; (exit $status)\n", typed.command)).collect();
    let home = tempfile::tempdir().expect("a directory");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_lock")).parent().expect("a directory").display().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1\n{}", lines.concat())]).env_clear().env("HOME", home.path());
    shell.env("PATH", format!("{program}:/usr/bin:/bin")).current_dir(home.path());
    let output = within(shell.stdin(Stdio::null()).kill_on_drop(true).output()).await.expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed: Vec<&str> = text.split(&format!("{MARK}\n")).collect();
    assert_eq!(printed.len(), all.len() + 1, "{text}");
    for (Typed { command, expected }, printed) in all.iter().zip(printed) {
        // Two processes that write at the same time do so in any order.
        let mut left: Vec<&str> = printed.lines().collect();
        for pattern in expected {
            let found = left.iter().position(|line| is_like(pattern, line));
            let found = found.unwrap_or_else(|| panic!("{command}: no line is like {pattern:?} in:\n{printed}"));
            left.remove(found);
        }
        assert!(left.is_empty(), "{command}: the README does not have these lines: {left:?}");
    }
}

#[test]
fn dots_stand_for_anything_and_nothing_else_does() {
    assert!(is_like("a ... c", "a b c") && is_like("...", "") && is_like("a...", "a") && is_like("a...b...c", "a1b2c"));
    assert!(!is_like("a ... c", "a b d") && !is_like("a", "a b") && !is_like("a...b...c", "a1c"));
}
