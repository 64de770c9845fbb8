//! What the locks cost on Redis and on Redlock, each figure beside its goal, in one table at the end.
//!
//! What is compared plays in turns, round after round, in one run: ours, the crate `rslock`, a minimal lock (`SET NX PX`, and a
//! script that compares and deletes) on the client crate that ours has, and the floor, two scripts that do no more than a lock
//! with a counter has to. A figure is the median of its rounds.
//!
//! `cargo bench --bench goals`; a word after `--` picks the parts with this word in their names.

use std::{env, future::Future, pin::Pin};

mod contended;
mod contestants;
mod goal;
mod hand_offs;
mod held;
mod many_names;
mod uncontended;

use goal::Figure;

/// A part of the measurements. It is told whether this is a test, which is one short round.
type Part = fn(bool) -> Pin<Box<dyn Future<Output = Vec<Figure>> + Send>>;

const PARTS: [(&str, Part); 6] = [
    ("uncontended", |is_test| Box::pin(uncontended::on_redis(is_test))),
    ("contended", |is_test| Box::pin(contended::on_redis(is_test))),
    ("many-names", |is_test| Box::pin(many_names::on_redis(is_test))),
    ("hand-offs", |is_test| Box::pin(hand_offs::on_redis(is_test))),
    ("held", |is_test| Box::pin(held::on_redis(is_test))),
    ("uncontended-redlock", |is_test| Box::pin(uncontended::on_redlock(is_test))),
];

fn main() {
    let mut arguments = env::args().skip(1).peekable();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // Spawned, as an application's own tasks are: the thread that blocks on a runtime is none of its workers.
    if arguments.next_if(|argument| argument == held::ARGUMENT).is_some() {
        return runtime.block_on(runtime.spawn(held::hold(arguments.collect()))).expect("the client ends");
    }
    let (options, words): (Vec<_>, Vec<_>) = arguments.partition(|argument| argument.starts_with('-'));
    // Cargo says so when this is no test.
    let is_test = !options.iter().any(|option| option == "--bench") || options.iter().any(|option| option == "--test");
    let is_picked = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let mut figures = Vec::new();
    for (_, part) in PARTS.iter().filter(|(name, _)| is_picked(name)) {
        figures.extend(runtime.block_on(runtime.spawn(part(is_test))).expect("the measurement ends"));
    }
    println!("{}", goal::table(&figures));
    if is_test {
        println!("One short round: what works was tried out, what it takes was not measured.");
    }
}
