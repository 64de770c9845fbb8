//! Who holds a lock, for people who look at it.

use rustix::system::uname;

/// The longest part of the payload, so that three of them stay well below the limit of a payload.
const LONGEST: usize = 255;

/// `program=... pid=... host=...`, for people: nothing depends on it.
pub(crate) fn payload() -> Vec<u8> {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = std::path::Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    let uname = uname();
    let host = uname.nodename().to_string_lossy();
    text(&program, std::process::id(), &host).into_bytes()
}

fn text(program: &str, pid: u32, host: &str) -> String {
    format!("program={} pid={pid} host={}", short(program), short(host))
}

fn short(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
mod tests {
    use lock_core::Request;

    use super::*;

    #[test]
    fn the_payload_names_this_process_and_its_host() {
        let payload = String::from_utf8(payload()).unwrap();
        assert!(payload.contains(&format!("pid={} host=", std::process::id())), "{payload}");
    }

    #[test]
    fn a_long_program_name_does_not_make_the_payload_too_long() {
        let long = "ü".repeat(5000);
        assert!(text(&long, u32::MAX, &long).len() <= Request::MAX_PAYLOAD);
    }
}
