//! A list of locks: what is held, by exactly the prefix that was asked for.

use std::{collections::BTreeSet, sync::Arc};

use super::super::{
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::{eventually, within},
    run::CaseRun,
};
use super::names::ODD;
use crate::{Feature, LockName};

/// Beginnings of names, each of which means something else to one that takes it for a pattern or escapes it.
const PREFIXES: &[&str] =
    &["a", "a*", "a?", "a[b]", "a[^b]", "a\\", "a\\*", "a/", "a%2F", "{a", "a}", "a}:", "é", "é\u{301}"];

/// Names that end as a key or a node of another name might.
const ENDINGS: &[&str] = &["x}", "x}:readers", "x}:permits", "x}:token", "x}:readers}", "x:readers", "x-x-0000000001"];

async fn listed(client: &CheckedClient, prefix: &str) -> CaseResult<Vec<LockName>> {
    Ok(within("a list of locks", client.locks().list(prefix)).await??)
}

/// Fails unless exactly `expected` is listed: a list that is read while others come and go shows what was there all along.
async fn lists(client: &CheckedClient, prefix: &str, expected: &BTreeSet<LockName>) -> CaseResult {
    let listed = listed(client, prefix).await?;
    ensure!(listed.iter().eq(expected), "of {expected:?} the list of {prefix:?} shows {listed:?}");
    Ok(())
}

/// What is given back goes from the list, where several servers do so one after the other, too.
async fn lists_nothing(client: &CheckedClient, prefix: &str) -> CaseResult {
    eventually("the list is empty", || async { Ok(listed(client, prefix).await?.is_empty().then_some(())) }).await
}

fn named(name: &str) -> CaseResult<LockName> {
    Ok(LockName::new(name)?)
}

pub(super) async fn a_list_shows_what_is_held_by_whatever_name_and_nothing_else(run: Arc<CaseRun>) -> CaseResult {
    let prefix = format!("{}/", run.name());
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mut names = BTreeSet::new();
    let mut guards: Vec<CheckedGuard> = Vec::new();
    for odd in ODD.iter().chain(ENDINGS) {
        let name = named(&format!("{prefix}{odd}"))?;
        guards.push(first.lock(&name).await?);
        names.insert(name);
    }
    lists(&second, &prefix, &names).await?;
    // What is free is not listed, although the servers may keep something of it.
    let gone = guards.split_off(guards.len() / 2);
    for guard in gone {
        names.remove(guard.name());
        guard.release().await?;
    }
    eventually("what was given back is not listed", || async {
        Ok(listed(&second, &prefix).await?.iter().eq(&names).then_some(()))
    })
    .await?;
    for guard in guards {
        guard.release().await?;
    }
    lists_nothing(&second, &prefix).await
}

pub(super) async fn a_list_begins_with_exactly_its_prefix(run: Arc<CaseRun>) -> CaseResult {
    let base = run.name();
    let client = run.connect().await?;
    let mut names = BTreeSet::new();
    let mut guards = Vec::new();
    for beginning in PREFIXES {
        for rest in ["", "b", "/b", "*"] {
            let name = named(&format!("{base}{beginning}{rest}"))?;
            // Two of them may be the same.
            if names.insert(name.clone()) {
                guards.push(client.lock(&name).await?);
            }
        }
    }
    for beginning in PREFIXES {
        let prefix = format!("{base}{beginning}");
        let expected = names.iter().filter(|name| name.as_str().starts_with(&prefix)).cloned().collect();
        lists(&client, &prefix, &expected).await?;
    }
    lists(&client, base.as_str(), &names).await?;
    lists(&client, &format!("{base}none"), &BTreeSet::new()).await?;
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

pub(super) async fn a_list_shows_each_name_once_however_it_is_held(run: Arc<CaseRun>) -> CaseResult {
    let prefix = format!("{}/", run.name());
    let [first, second] = [run.connect().await?, run.connect().await?];
    let (mut names, mut guards, mut permits) = (BTreeSet::new(), Vec::new(), Vec::new());
    if first.supports(Feature::ReadWrite) {
        let name = named(&format!("{prefix}read"))?;
        guards.extend([first.read(&name).await?, second.read(&name).await?]);
        names.insert(name);
    }
    if first.supports(Feature::Semaphore) {
        let [both, only] = [named(&format!("{prefix}both"))?, named(&format!("{prefix}semaphore"))?];
        permits.extend([first.permit(&both, 2).await?, second.permit(&both, 2).await?, first.permit(&only, 1).await?]);
        guards.push(first.lock(&both).await?);
        names.extend([both, only]);
    }
    lists(&second, &prefix, &names).await?;
    for guard in guards {
        guard.release().await?;
    }
    for permit in permits {
        permit.release().await?;
    }
    lists_nothing(&second, &prefix).await
}
