//! Completions and manual pages.

use std::{collections::BTreeSet, fs};

use tokio::process::Command;

use crate::common::{finish, output};

#[tokio::test]
async fn every_shell_has_completions_and_those_of_bash_complete() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = output("", &["completions", shell]).await;
        assert_eq!((script.status, script.stderr.as_str()), (Some(0), ""), "{script:?}");
        assert!(script.stdout.contains("elect") && script.stdout.contains("at-least"), "{shell}: {}", script.stdout);
        assert!(!script.stdout.contains("guardian"), "{shell}: {}", script.stdout);
    }
    let complete = |words: &str| {
        let script = format!(
            "source <(\"$0\" completions bash); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _lock lock \"${{COMP_WORDS[COMP_CWORD]}}\" lock; echo \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &script, env!("CARGO_BIN_EXE_lock")]);
        bash
    };
    for (words, completed) in
        [("lock sta", "status\n"), ("lock run --at", "--at-least\n"), ("lock redlock re", "replace\n")]
    {
        let shown = finish(&mut complete(words)).await;
        assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), (completed, ""), "{words}");
    }
    let wrong = output("", &["completions", "tcsh"]).await;
    assert_eq!(wrong.status, Some(64), "{wrong:?}");
}

#[tokio::test]
async fn every_subcommand_has_a_manual_page() {
    let page = output("", &["man"]).await;
    assert!(page.status == Some(0) && page.stdout.contains(".TH lock 1"), "{page:?}");
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().to_str().unwrap();
    let written = output("", &["man", to]).await;
    assert_eq!((written.status, written.stdout.as_str(), written.stderr.as_str()), (Some(0), "", ""));
    let pages: BTreeSet<String> =
        fs::read_dir(to).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    for page in ["lock.1", "lock-run.1", "lock-elect.1", "lock-redlock.1", "lock-redlock-init.1", "lock-completions.1"]
    {
        assert!(pages.contains(page), "{page} is not in {pages:?}");
    }
    assert!(!pages.contains("lock-guardian.1"), "{pages:?}");
    let run = fs::read_to_string(directory.path().join("lock-run.1")).unwrap();
    assert!(run.contains("at\\-least") && run.contains("LOCK_TOKEN"), "{run}");
    let refused = output("", &["man", "/nowhere/at/all"]).await;
    assert_eq!(refused.status, Some(71), "{refused:?}");
    assert!(refused.stderr.contains("/nowhere/at/all") && refused.stderr.contains("No such file"), "{refused:?}");
}
