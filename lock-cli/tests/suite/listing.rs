//! `lock list` and `lock release --force` on real servers.

use serde_json::Value;

use crate::common::{
    Output, Running, finish, lock, output,
    services::{Service, on_each_service, on_local_files},
    unset,
};

on_each_service! {
    a_list_shows_what_is_held_by_whom_and_since_when,
    a_forced_release_ends_the_command_of_the_holder_whose_token_it_names_and_no_other,
}

on_local_files! {
    a_list_shows_what_is_held_by_whom_and_since_when,
    a_forced_release_ends_the_command_of_the_holder_whose_token_it_names_and_no_other,
}

/// Ends when its input does.
const UNTIL_EOF: &str = "echo $LOCK_TOKEN; cat >/dev/null";

async fn hold(url: &str, name: &str) -> (Running, String) {
    let mut holder = Running::start(url, &["run", name, "--", "sh", "-c", UNTIL_EOF]);
    let token = holder.line().await.expect("it holds");
    (holder, token)
}

fn said(output: &Output) -> Vec<&str> {
    output.stdout.lines().collect()
}

async fn a_list_shows_what_is_held_by_whom_and_since_when(service: Service) {
    let url = service.lasting_url();
    let nothing = output(&url, &["list"]).await;
    assert_eq!((nothing.status, nothing.stdout.as_str()), (Some(0), ""), "{nothing:?}");
    let mut holders = Vec::new();
    for name in ["orders/1", "orders/*", "stock/1"] {
        holders.push(hold(&url, name).await);
    }
    let all = output(&url, &["list"]).await;
    let begins: Vec<_> = said(&all).iter().map(|line| line.split(" id=").next().unwrap().to_owned()).collect();
    assert_eq!(begins, ["\"orders/*\"", "\"orders/1\"", "\"stock/1\""], "{all:?}");
    for (_, token) in &holders {
        assert!(all.stdout.contains(&format!("token={token} ")), "{token} in {all:?}");
    }
    // What is listed is what a status says.
    let status = output(&url, &["status", "orders/1", "--json"]).await;
    let listed = output(&url, &["list", "orders/1", "--json"]).await;
    let [status, mut listed] = [&status, &listed].map(|one| serde_json::from_str::<Value>(&one.stdout).expect("JSON"));
    for told in ["id", "payload", "mode", "permits", "token", "since"] {
        assert_eq!(status["holders"][0][told], listed["holders"][0][told], "{told}");
    }
    listed["holders"] = status["holders"].clone();
    assert_eq!(status, listed);
    let one = output(&url, &["list", "orders/*"]).await;
    assert_eq!(said(&one).len(), 1, "{one:?}");
    for (mut holder, _) in holders {
        holder.close_stdin();
        assert_eq!(holder.end().await.code(), Some(0));
    }
    // Where several servers have it, one of them may be a moment behind.
    while !output(&url, &["list"]).await.stdout.is_empty() {}
}

async fn a_forced_release_ends_the_command_of_the_holder_whose_token_it_names_and_no_other(service: Service) {
    let url = service.lasting_url();
    let (mut holder, token) = hold(&url, "a").await;
    let (era, number) = token.split_once('-').expect("a token");
    let next_number: u64 = number.parse::<u64>().expect("a number") + 1;
    let other = format!("{era}-{next_number:020}");
    for json in [false, true] {
        let mut arguments = vec!["release", "--force", "a", "--token", &other];
        arguments.extend(json.then_some("--json"));
        let wrong = output(&url, &arguments).await;
        assert_eq!(wrong.status, Some(1), "{wrong:?}");
        assert!(wrong.stdout.contains(&token), "it says who holds it: {wrong:?}");
    }
    let careless = output(&url, &["release", "a", "--token", &token]).await;
    assert_eq!((careless.status, careless.stdout.as_str()), (Some(64), ""), "{careless:?}");
    assert!(careless.stderr.contains("--force") && careless.stderr.contains("still be at work"), "{careless:?}");

    let forced = output(&url, &["release", "--force", "a", "--token", &token]).await;
    assert_eq!(forced.status, Some(0), "{forced:?}");
    assert!(forced.stdout.starts_with("\"a\" was taken away from id="), "{forced:?}");
    // The next one holds, and what is repeated does not touch it.
    let (mut next, greater) = hold(&url, "a").await;
    assert!(greater > token, "{greater} after {token}");
    let again = output(&url, &["release", "--force", "a", "--token", &token, "--json"]).await;
    let object: Value = serde_json::from_str(&again.stdout).expect("JSON");
    assert_eq!((again.status, &object["released"]), (Some(1), &Value::Bool(false)), "{again:?}");
    assert_eq!(object["holders"][0]["token"], Value::String(greater));
    // Its command is ended, and it says why.
    assert_eq!(holder.end().await.code(), Some(76));
    next.close_stdin();
    assert_eq!(next.end().await.code(), Some(0));
}

#[tokio::test]
async fn a_token_that_is_none_or_of_another_era_is_refused_with_what_is_allowed() {
    let none = output("memory://", &["release", "--force", "a", "--token", "7x"]).await;
    assert_eq!(none.status, Some(64), "{none:?}");
    assert!(none.stderr.contains("7x") && none.stderr.contains("ERA-NUMBER"), "{none:?}");
    let token = "0000000002-00000000000000000007";
    let other = output("memory://?era=3", &["release", "--force", "a", "--token", token]).await;
    assert_eq!(other.status, Some(78), "{other:?}");
    assert!(other.stderr.contains(token) && other.stderr.contains("era 3"), "{other:?}");
}

#[tokio::test]
async fn a_list_whose_reader_has_seen_enough_ends_quietly() {
    let service = Service::local().await;
    let (mut holder, _) = hold(&service.url(), "a").await;
    let mut piped = tokio::process::Command::new("sh");
    piped.args(["-c", "{ \"$0\" list; echo \"status $?\" >&2; } | true", env!("CARGO_BIN_EXE_lock")]);
    let piped = finish(unset(&mut piped).env("LOCK_URL", service.url())).await;
    assert_eq!(piped.stderr, "status 0\n", "{piped:?}");
    holder.close_stdin();
    assert_eq!(holder.end().await.code(), Some(0));
    // Nothing listens there.
    assert_eq!(finish(&mut lock("redis://127.0.0.1:1", &["list"])).await.status, Some(69));
}
