//! What the tests of this crate have in common is built once: they are one program.

mod at_least;
mod bad_input;
/// The part of the catalogue of other people's bugs that needs the program; the rest are tests of the package `lock`.
#[path = "../../../tests/suite/catalogue/command_line.rs"]
mod catalogue;
mod common;
mod cron;
mod doctor;
mod elect;
mod ending;
mod generated;
mod listing;
mod modes;
mod nested;
mod outage;
mod output;
mod packaging;
mod readme;
mod run;
mod secrets;
mod services;
mod stopped;
mod terminal;
mod told;
mod waiting;
