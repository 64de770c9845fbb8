//! The `lock` program.
fn main() {}
