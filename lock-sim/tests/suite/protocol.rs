//! What the simulated Redis server reads and writes.

use lock_sim::redis::{Reply, Requests};

#[test]
fn requests_come_in_any_pieces() {
    let text = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n";
    for cut in 0..text.len() {
        let mut requests = Requests::default();
        let mut all = Vec::new();
        for part in [&text[..cut], &text[cut..]] {
            requests.feed(part);
            while let Some(words) = requests.next_request() {
                all.push(words.concat());
            }
        }
        assert_eq!(all, [b"GET\r\n".to_vec(), b"PING".to_vec()], "cut at {cut}");
    }
}

#[test]
fn answers_are_written_as_a_server_does() {
    let mut written = Vec::new();
    let parts = vec![Reply::Int(-1), Reply::Nil, Reply::bulk("ab"), Reply::wrong_type()];
    Reply::Array(parts).write(&mut written);
    let text = String::from_utf8(written).unwrap();
    assert!(text.starts_with("*4\r\n:-1\r\n$-1\r\n$2\r\nab\r\n-WRONGTYPE "), "{text}");
}
