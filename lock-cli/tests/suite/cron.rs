//! The example of a cron job (`examples/cron`), as several hosts would run it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use tokio::process::Command;

use crate::common::{Output, finish, services::Service};

/// How many hosts have the job in their crontab.
const HOSTS: usize = 5;

/// The line of `lock run` that cron and systemd have in common.
const RUN: &str =
    "lock run nightly-report --no-wait --conflict-exit-code 0 --max-hold 2h -- /usr/local/bin/nightly-report";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cron").join(name)
}

/// The crontab of the example: its variables, and the command of its job.
fn crontab() -> (BTreeMap<String, String>, String) {
    let text = fs::read_to_string(file("crontab")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (variables, jobs): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with(char::is_alphabetic));
    let variables = variables.iter().map(|line| line.split_once('=').unwrap());
    let [job] = jobs[..] else { panic!("{jobs:?}") };
    let command = job.splitn(6, ' ').nth(5).expect("five fields, then a command");
    (variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), command.to_owned())
}

/// The job as cron starts it, but with the service at `url` instead of the example's, reports below `reports`, and the script
/// where it is.
fn job(url: Option<&str>, reports: &Path) -> Command {
    let (mut variables, command) = crontab();
    variables.remove("LOCK_URL").expect("the crontab names a service");
    variables.extend(url.map(|url| ("LOCK_URL".to_owned(), url.to_owned())));
    variables.insert("REPORTS".to_owned(), reports.to_str().unwrap().to_owned());
    let script = file("nightly-report");
    let command = command.replace("/usr/local/bin/nightly-report", script.to_str().unwrap());
    let program = Path::new(env!("CARGO_BIN_EXE_lock")).parent().unwrap();
    let mut job = Command::new("/bin/sh");
    job.arg("-c").arg(command).env_clear().envs(variables);
    job.env("PATH", format!("{}:/usr/bin:/bin", program.display()));
    job
}

fn reports(dir: &TempDir) -> Vec<String> {
    fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

async fn all_hosts(url: &str, dir: &TempDir) -> Vec<Output> {
    let mut jobs: Vec<Command> = (0..HOSTS).map(|_| job(Some(url), dir.path())).collect();
    futures::future::join_all(jobs.iter_mut().map(finish)).await
}

#[tokio::test]
async fn of_five_hosts_one_makes_the_report_and_none_fails() {
    let service = Service::redis().await;
    let dir = tempfile::tempdir().unwrap();
    let mut outputs = all_hosts(&service.patient_url(), &dir).await;
    // Hosts whose clocks are late.
    outputs.extend(all_hosts(&service.patient_url(), &dir).await);
    assert!(outputs.iter().all(|output| output.status == Some(0)), "{outputs:?}");
    let made = outputs.iter().filter(|output| output.stdout.contains("is made")).count();
    assert_eq!((made, reports(&dir).len()), (1, 1), "{outputs:?}");
}

#[tokio::test]
async fn without_its_variable_the_job_fails_and_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = finish(&mut job(None, dir.path())).await;
    assert_ne!(output.status, Some(0), "{output:?}");
    assert!(output.stderr.contains("LOCK_URL") && reports(&dir).is_empty(), "{output:?}");
}

#[test]
fn the_crontab_and_the_systemd_service_run_the_same() {
    assert_eq!(crontab().1, RUN);
    let service = fs::read_to_string(file("nightly-report.service")).unwrap();
    assert!(service.contains(&format!("\nExecStart=/usr/bin/{RUN}\n")), "{service}");
}
