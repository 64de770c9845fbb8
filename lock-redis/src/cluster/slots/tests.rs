use proptest::prelude::*;

use super::*;

fn at(port: u16) -> Address {
    Address::new("h", port)
}

fn range_of(first: u16, last: u16, ports: &[u16]) -> SlotRange {
    let members = ports.iter().map(|port| ClusterMember { id: format!("id-{port}"), address: at(*port) }).collect();
    SlotRange { first, last, members }
}

fn learned(ranges: &[SlotRange]) -> SlotLayout {
    SlotLayout::default().learn(ranges)
}

#[test]
fn slots_are_those_of_the_specification() {
    // The first is the test vector of the specification; the others were asked of a server.
    assert_eq!(crc16::State::<crc16::XMODEM>::calculate(b"123456789"), 0x31c3);
    for (key, slot) in
        [("foo", 12_182), ("{lock:a}", slot_of("lock:a")), ("a{}b", slot_of("a{}b")), ("somekey", 11_058)]
    {
        assert_eq!(slot_of(key), slot, "{key}");
    }
    assert_eq!(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
    assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
    assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
}

#[test]
fn an_answer_is_read_with_all_that_servers_may_leave_out() {
    let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let server = |host: Value, port, rest: &[Value]| Value::Array([&[host, Value::Int(port)], rest].concat());
    let members = [
        server(bulk("10.0.0.1"), 1, &[bulk("a"), Value::Array(vec![])]),
        server(Value::Nil, 2, &[bulk("b")]),
        server(bulk(""), 3, &[]),
    ];
    let answer = Value::Array(vec![Value::Array([&[Value::Int(0), Value::Int(5)], &members[..]].concat())]);
    let read = ranges(&answer, &at(9)).unwrap();
    let addresses: Vec<_> = read[0].members.iter().map(|member| member.address.to_string()).collect();
    assert_eq!((read[0].first, read[0].last), (0, 5));
    assert_eq!(addresses, ["10.0.0.1:1", "h:2", "h:3"]);
    for nonsense in
        [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Nil]), Value::Array(vec![answer.clone()])]
    {
        assert_eq!(ranges(&nonsense, &at(9)), None, "{nonsense:?}");
    }
}

#[test]
fn a_shard_is_the_same_one_after_a_failover() {
    let before = learned(&[range_of(0, 9, &[1, 4]), range_of(10, 19, &[2, 5])]);
    let [first, second] = [before.owner(3).unwrap(), before.owner(13).unwrap()];
    let after = before.learn(&[range_of(0, 9, &[4, 1]), range_of(10, 19, &[2])]);
    assert_eq!([after.owner(3), after.owner(13)], [Some(first), Some(second)]);
    assert_eq!(after.primary(first), Some(&at(4)));
    // Its other server is gone by now, and a new one is there.
    let later = after.learn(&[range_of(0, 9, &[4, 7]), range_of(10, 19, &[2, 5])]);
    assert_eq!(later.owner(3), Some(first));
}

#[test]
fn a_replica_that_changed_sides_takes_no_shard_with_it() {
    let before = learned(&[range_of(0, 9, &[1, 4]), range_of(10, 19, &[2, 5])]);
    let [first, second] = [before.owner(3), before.owner(13)];
    let after = before.learn(&[range_of(0, 9, &[1]), range_of(10, 19, &[2, 4, 5])]);
    assert_eq!([after.owner(3), after.owner(13)], [first, second]);
}

#[test]
fn a_slot_that_moved_is_found_there_at_once_and_an_unknown_server_is_none() {
    let mut layout = learned(&[range_of(0, 9, &[1, 4]), range_of(10, 19, &[2, 5])]);
    let second = layout.owner(13);
    assert_eq!(layout.moved(3, &at(2)), second);
    assert_eq!((layout.owner(3), layout.owner(4) == second), (second, false));
    assert_eq!(layout.moved(3, &at(9)), None);
    // One that says that a replica has it says that this is the primary now.
    assert_eq!(layout.moved(13, &at(5)), second);
    assert_eq!(layout.primary(second.unwrap()), Some(&at(5)));
    assert_eq!(layout.owner(20), None);
}

proptest! {
    #[test]
    fn every_slot_is_where_the_newest_answer_says(
        cuts in proptest::collection::btree_set(1..SLOTS, 1..8),
        again in proptest::collection::vec((0..4_u16, any::<bool>()), 1..8),
    ) {
        let mut layout = SlotLayout::default();
        for (turn, swapped) in again {
            let (mut first, mut ranges) = (0, Vec::new());
            for (place, cut) in cuts.iter().chain([&SLOTS]).enumerate() {
                let shard = (u16::try_from(place).unwrap() + turn) % 4;
                let ports = if swapped { [shard + 10, shard] } else { [shard, shard + 10] };
                ranges.push(range_of(first, cut - 1, &ports));
                first = *cut;
            }
            layout = layout.learn(&ranges);
            for range in &ranges {
                for slot in [range.first, range.last] {
                    let owner = layout.owner(slot).unwrap();
                    prop_assert_eq!(layout.primary(owner), Some(&range.members[0].address));
                }
            }
            let keys: std::collections::BTreeSet<_> = layout.keys().collect();
            prop_assert_eq!(keys.len(), layout.keys().count(), "two shards share a key");
        }
    }
}
