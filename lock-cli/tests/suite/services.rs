//! `lock run` and `lock status` on real servers of each backend.

use lock::Clock;
use lock_lab::servers::Redis;

use crate::common::{
    Running, output,
    services::{LEASE, Service, on_each_service, on_local_files},
};

on_each_service! {
    a_lock_that_is_held_is_not_acquired,
    an_interrupted_wait_ends_and_leaves_nothing,
    a_killed_holder_is_succeeded_in_time,
    a_deleted_lock_ends_the_commands_whole_group,
    a_service_that_falls_silent_ends_the_commands_whole_group,
    a_service_that_is_down_is_unavailable,
    a_setting_that_the_service_does_not_know_is_a_configuration_error,
    status_shows_the_holder,
}

on_local_files! {
    a_lock_that_is_held_is_not_acquired,
    an_interrupted_wait_ends_and_leaves_nothing,
    a_killed_holder_is_succeeded_in_time,
    a_deleted_lock_ends_the_commands_whole_group,
    status_shows_the_holder,
}

/// Ends when its input does.
const UNTIL_EOF: &str = "echo held; cat >/dev/null";

/// Somebody in the group who does not follow SIGTERM, and somebody who does.
const STUBBORN: &str = "sh -c 'trap \"\" TERM; echo deep; while :; do sleep 1; done' & wait";

async fn a_lock_that_is_held_is_not_acquired(service: Service) {
    let url = service.lasting_url();
    let mut holder = Running::start(&url, &["run", "a/b", "--", "sh", "-c", UNTIL_EOF]);
    holder.expect("held").await;

    let refused = output(&url, &["run", "a/b", "--no-wait", "--", "echo", "ran"]).await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(75), ""), "{refused:?}");
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    let refused = output(&url, &["run", "a/b", "--no-wait", "--conflict-exit-code", "9", "--", "echo", "ran"]).await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(9), ""), "{refused:?}");
    // Connecting has no more time than that, either.
    let refused = output(&url, &["run", "a/b", "--wait", "3s", "--", "echo", "ran"]).await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(75), ""), "{refused:?}");
    let other = output(&url, &["run", "a", "--no-wait", "--", "echo", "ran"]).await;
    assert_eq!((other.status, other.stdout.as_str()), (Some(0), "ran\n"), "{other:?}");

    let mut waiter = Running::start(&url, &["run", "a/b", "--", "echo", "next"]);
    holder.close_stdin();
    assert_eq!(holder.end().await.code(), Some(0));
    waiter.expect("next").await;
    assert_eq!(waiter.end().await.code(), Some(0));

    let free = output(&url, &["run", "a/b", "--no-wait", "--", "echo", "ran"]).await;
    assert_eq!((free.status, free.stdout.as_str()), (Some(0), "ran\n"), "{free:?}");
}

async fn an_interrupted_wait_ends_and_leaves_nothing(service: Service) {
    let url = service.lasting_url();
    let mut holder = Running::start(&url, &["run", "a", "--", "sh", "-c", UNTIL_EOF]);
    holder.expect("held").await;
    let mut waiter = Running::start(&url, &["run", "a", "--", "echo", "ran"]);
    waiter.catches_signals().await;
    if service.deployment().is_ensemble() || service.deployment().servers == 0 {
        // Its place in the queue can be seen, so here it surely waits.
        while !output(&url, &["status", "a"]).await.stdout.contains("waits 1") {}
    }
    waiter.signal("TERM");
    assert_eq!(waiter.end().await.code(), Some(143));
    assert_eq!(waiter.line().await, None);

    let held = output(&url, &["status", "a"]).await;
    assert_eq!(held.stdout.lines().count(), 2, "{held:?}");
    holder.close_stdin();
    assert_eq!(holder.end().await.code(), Some(0));
    assert_eq!(output(&url, &["run", "a", "--no-wait", "--", "true"]).await.status, Some(0));
}

async fn a_killed_holder_is_succeeded_in_time(service: Service) {
    let url = service.url();
    let mut holder = Running::start(&url, &["run", "a", "--", "sh", "-c", "sleep 1000 & echo held; wait"]);
    holder.expect("held").await;
    let mut waiter = Running::start(&url, &["run", "a", "--", "sh", "-c", "echo held; exit 5"]);
    // Meanwhile the waiter has begun to wait, or will come later: it must be granted in time either way.
    assert_eq!(output(&url, &["run", "a", "--no-wait", "--", "true"]).await.status, Some(75));

    let clock = Clock::boot();
    let killed = clock.now();
    holder.signal("KILL");
    waiter.expect("held").await;
    let taken = clock.now().saturating_since(killed);
    // The guardian has ended the command of the holder, all of it.
    holder.all_end().await;
    assert_eq!(waiter.end().await.code(), Some(5));

    let bound = service.succession();
    println!("succeeded after {taken:?}; the bound is {bound:?}");
    // The bound is for a machine that is not busy with other tests at the same time, so here it has some slack: less than a
    // second expiry would take.
    assert!(taken <= bound + LEASE * 2 / 3, "{taken:?}, and the bound is {bound:?}");
}

async fn a_deleted_lock_ends_the_commands_whole_group(service: Service) {
    let url = service.url();
    let mut holder = Running::start(&url, &["run", "a b", "--kill-after", "300ms", "--", "sh", "-c", STUBBORN]);
    holder.expect("deep").await;
    service.delete("a b").await;
    holder.all_end().await;
    assert_eq!(holder.end().await.code(), Some(76));
    let stderr = holder.stderr().await;
    assert!(stderr.contains("lost") && stderr.lines().count() == 1, "{stderr}");
}

async fn a_service_that_falls_silent_ends_the_commands_whole_group(service: Service) {
    let url = service.url();
    let mut holder = Running::start(&url, &["run", "a", "--kill-after", "300ms", "--", "sh", "-c", STUBBORN]);
    holder.expect("deep").await;
    service.freeze();
    holder.all_end().await;
    assert_eq!(holder.end().await.code(), Some(76));
    let stderr = holder.stderr().await;
    assert!(stderr.contains("lost"), "{stderr}");
}

async fn a_service_that_is_down_is_unavailable(mut service: Service) {
    let url = service.url();
    service.kill();
    for arguments in [&["run", "a", "--no-wait", "--", "echo", "ran"][..], &["status", "a"]] {
        let down = output(&url, arguments).await;
        assert_eq!((down.status, down.stdout.as_str()), (Some(69), ""), "{down:?}");
        // Before it, perhaps, that the service is waited for.
        let said = down.stderr.lines().last().unwrap_or_default();
        assert!(said.contains("unavailable") && down.stderr.matches("unavailable").count() == 1, "{down:?}");
    }
}

async fn a_setting_that_the_service_does_not_know_is_a_configuration_error(service: Service) {
    let unknown = output(&format!("{}&no_such_key=17", service.url()), &["status", "a"]).await;
    assert_eq!(unknown.status, Some(78), "{unknown:?}");
    assert!(unknown.stderr.contains("no_such_key") && unknown.stderr.contains("17"), "{unknown:?}");
    if service.deployment().is_ensemble() {
        // All locks of a session end with it.
        let ttl = output(&service.url(), &["run", "a", "--ttl", "5s", "--", "true"]).await;
        assert_eq!(ttl.status, Some(78), "{ttl:?}");
        assert!(ttl.stderr.contains("session_timeout"), "{ttl:?}");
    }
}

#[tokio::test]
async fn new_redlock_nodes_are_marked_by_a_command() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Redis::start().await.unwrap());
    }
    let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redlock://{}", hosts.join(","));
    let unmarked = output(&url, &["run", "a", "--no-wait", "--", "true"]).await;
    assert_eq!(unmarked.status, Some(78), "{unmarked:?}");
    assert!(unmarked.stderr.contains("lock redlock init"), "{unmarked:?}");
    for _ in 0..2 {
        let marked = output(&url, &["redlock", "init", "--no-holders"]).await;
        assert_eq!((marked.status, marked.stderr.as_str()), (Some(0), ""), "{marked:?}");
    }
    assert_eq!(output(&url, &["run", "a", "--no-wait", "--", "true"]).await.status, Some(0));
    let other = output(&format!("{url}?max_ttl=2m"), &["redlock", "init"]).await;
    assert_eq!(other.status, Some(78), "{other:?}");
    assert!(other.stderr.contains("120s") && other.stderr.contains("60s"), "{other:?}");
    let reset = output(&format!("{url}?max_ttl=2m"), &["redlock", "init", "--reset"]).await;
    assert_eq!(reset.status, Some(0), "{reset:?}");
    assert!(reset.stderr.contains("grants nothing for 2m"), "{reset:?}");
    // Another server takes the place of one that is dead, and a client with the list of before goes on.
    let new = Redis::start().await.unwrap();
    let new_host = format!("127.0.0.1:{}", new.port());
    let reset = output(&url, &["redlock", "init", "--reset", "--no-holders"]).await;
    assert_eq!(reset.status, Some(0), "{reset:?}");
    for node in &nodes {
        let _: () = node.ask("DEL", &["redlock:quarantine"]).await.unwrap();
    }
    nodes[2].kill();
    let wrong = output(&url, &["redlock", "replace", &hosts[2], &hosts[0]]).await;
    assert_eq!(wrong.status, Some(78), "{wrong:?}");
    assert!(wrong.stderr.contains("none of the members"), "{wrong:?}");
    let replaced = output(&url, &["redlock", "replace", &hosts[2], &new_host]).await;
    assert_eq!(replaced.status, Some(0), "{replaced:?}");
    assert!(replaced.stderr.contains("gives no vote") && replaced.stderr.contains(&new_host), "{replaced:?}");
    assert!(replaced.stderr.contains("could not be told"), "{replaced:?}");
    assert_eq!(output(&url, &["run", "a", "--no-wait", "--", "true"]).await.status, Some(0));
    let list = format!("redlock://{},{},{new_host}", hosts[0], hosts[1]);
    assert_eq!(output(&list, &["run", "a", "--no-wait", "--", "true"]).await.status, Some(0));
    let refused = output(&nodes[0].url(), &["redlock", "init"]).await;
    assert_eq!(refused.status, Some(78), "{refused:?}");
}

async fn status_shows_the_holder(service: Service) {
    let url = service.lasting_url();
    let free = output(&url, &["status", "jobs/1"]).await;
    assert_eq!((free.status, free.stdout.as_str()), (Some(0), "\"jobs/1\" is free\n"), "{free:?}");

    let mut holder = Running::start(&url, &["run", "jobs/1", "--", "sh", "-c", UNTIL_EOF]);
    holder.expect("held").await;
    let held = output(&url, &["status", "jobs/1"]).await;
    assert_eq!(held.status, Some(0), "{held:?}");
    assert!(held.stdout.starts_with("\"jobs/1\" is held\n  holder "), "{held:?}");
    assert!(held.stdout.contains(&format!("program=lock command=sh pid={} host=", holder.pid())), "{held:?}");
    // What a command is given may be secret.
    assert!(held.stdout.contains(" user=") && !held.stdout.contains("dev/null"), "{held:?}");

    holder.close_stdin();
    assert_eq!(holder.end().await.code(), Some(0));
    let free = output(&url, &["status", "jobs/1"]).await;
    assert_eq!(free.stdout, "\"jobs/1\" is free\n", "{free:?}");
}
