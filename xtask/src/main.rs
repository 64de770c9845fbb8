//! The jobs.
fn main() {}
