//! The table of docs/reliability.md names exactly these tests.
