//! `lock run` and `lock elect` within the command of another one.

use crate::common::{Output, Running, output, services::Service};

/// Runs `lock` with `outer`, and within its command `lock` with `inner`.
async fn nested(url: &str, outer: &[&str], inner: &[&str]) -> Output {
    let program = [env!("CARGO_BIN_EXE_lock")];
    output(url, &[outer, &["--"], &program, inner].concat()).await
}

#[tokio::test]
async fn a_lock_that_an_ancestor_holds_is_refused_instead_of_waited_for() {
    let url = Service::local().await.url();
    let lock = env!("CARGO_BIN_EXE_lock");
    for (outer, inner) in [
        (&["run", "a"][..], &["run", "a", "--", "echo", "ran"][..]),
        (&["run", "a"], &["run", "a", "--no-wait", "--", "echo", "ran"]),
        (&["run", "a"], &["run", "a", "--shared", "--", "echo", "ran"]),
        // A writer that waits between them would be waited for by the one, and wait for the other.
        (&["run", "a", "--shared"], &["run", "a", "--shared", "--", "echo", "ran"]),
        (&["run", "a", "--permits", "2"], &["run", "a", "--permits", "2", "--", "echo", "ran"]),
        (&["run", "a"], &["elect", "a", "--", "echo", "ran"]),
        (&["elect", "a"], &["run", "a", "--", "echo", "ran"]),
        (&["run", "a"], &["run", "b", "--", lock, "run", "a", "--", "echo", "ran"]),
        (&["run", "a"], &["run", "b", "--", "sh", "-c", "\"$0\" run a -- echo ran", lock]),
    ] {
        let refused = nested(&url, outer, inner).await;
        assert_eq!((refused.status, refused.stdout.as_str()), (Some(64), ""), "{outer:?} {inner:?}: {refused:?}");
        let said = refused.stderr.contains(" \"a\" is held by process ") && refused.stderr.contains("--nested");
        assert!(said && refused.stderr.lines().count() == 1, "{outer:?} {inner:?}: {refused:?}");
    }
}

#[tokio::test]
async fn what_no_ancestor_holds_or_what_is_asked_for_all_the_same_is_not_refused() {
    let url = Service::local().await.url();
    let other = Service::local().await.url();
    let name = "a \"b\"\n\\";
    for (outer, inner) in [
        (&["run", "a"][..], &["run", "b", "--", "echo", "ran"][..]),
        (&["run", name], &["run", "a", "--", "echo", "ran"]),
        (&["run", "a"], &["run", "a", "--permits", "1", "--", "echo", "ran"]),
        (&["run", "a"], &["--url", &other, "run", "a", "--", "echo", "ran"]),
        (&["run", "a", "--shared"], &["run", "a", "--shared", "--nested", "--", "echo", "ran"]),
    ] {
        let ran = nested(&url, outer, inner).await;
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), "ran\n"), "{outer:?} {inner:?}: {ran:?}");
    }
    let refused = nested(&url, &["run", name], &["run", name, "--", "true"]).await;
    assert_eq!(refused.status, Some(64), "{refused:?}");
    let held = nested(&url, &["run", "a"], &["run", "a", "--nested", "--no-wait", "--", "true"]).await;
    assert_eq!(held.status, Some(75), "{held:?}");
}

#[tokio::test]
async fn what_a_command_has_left_in_the_background_may_have_the_lock_after_it() {
    let url = Service::local().await.url();
    // A shell gives what it puts into the background an empty standard input, but leaves it the other descriptors.
    let script = "exec 3<&0; (cat <&3 >/dev/null; exec \"$0\" run a -- echo later) & exit 4";
    let mut run = Running::start(&url, &["run", "a", "--", "sh", "-c", script, env!("CARGO_BIN_EXE_lock")]);
    assert_eq!(run.end().await.code(), Some(4));
    run.close_stdin();
    run.expect("later").await;
}
