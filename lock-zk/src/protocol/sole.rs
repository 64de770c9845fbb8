//! The node that all contenders of the strategy `herd` want to create: whose it is, by its data.

/// What stands between the unique id and the payload in a node's data.
const SEPARATOR: u8 = b'\n';

/// What a contender writes into the node: its unique id, which tells its node from others of the same name, and its payload.
pub(crate) fn data(unique: &str, payload: &[u8]) -> Vec<u8> {
    [unique.as_bytes(), &[SEPARATOR], payload].concat()
}

/// The unique id and the payload in a node's data; the id is empty in what no contender wrote.
pub(crate) fn parts(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == SEPARATOR) {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (&[], data),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_nobody_of_us_wrote_has_no_maker() {
        assert_eq!(parts(b"somebody else's"), (&b""[..], &b"somebody else's"[..]));
    }

    proptest! {
        #[test]
        fn a_nodes_data_lead_back_to_its_maker_and_its_payload(unique in "[0-9a-f-]{1,40}", payload: Vec<u8>) {
            let data = data(&unique, &payload);
            prop_assert_eq!(parts(&data), (unique.as_bytes(), payload.as_slice()));
        }

        #[test]
        fn whatever_a_node_holds_is_all_shown_and_has_one_maker_at_most(data: Vec<u8>) {
            let (unique, payload) = parts(&data);
            prop_assert!(data.ends_with(payload) && data.starts_with(unique));
            prop_assert!(unique.is_empty() || unique.len() + 1 + payload.len() == data.len());
        }
    }
}
