//! Scripts on the simulated Redis server.

use lock_sim::redis::{Removal, Reply, Store, load, run};

fn eval(store: &mut Store, source: &str, without: Option<&Removal>) -> Reply {
    let hash = load(source.as_bytes());
    run(store, &hash, &[b"k"], &[b"5"], without)
}

#[test]
fn a_script_reads_and_writes_the_store_and_its_errors_are_answers() {
    let mut store = Store::new("1".to_owned());
    assert_eq!(eval(&mut store, "return redis.call('SET', KEYS[1], ARGV[1])", None), Reply::ok());
    assert_eq!(eval(&mut store, "return tonumber(redis.call('GET', KEYS[1])) + 1", None), Reply::Int(6));
    assert_eq!(eval(&mut store, "return redis.call('HGET', KEYS[1], 'f')", None), Reply::wrong_type());
    assert_eq!(eval(&mut store, "return redis.pcall('HGET', KEYS[1], 'f').err ~= nil", None), Reply::Int(1));
    assert_eq!(eval(&mut store, "return {1, false, 'x', nil, 2}", None).clone(), {
        Reply::Array(vec![Reply::Int(1), Reply::Nil, Reply::bulk("x")])
    });
    assert!(matches!(eval(&mut store, "return nothing.there", None), Reply::Error(text) if text.starts_with("ERR")));
}

#[test]
fn what_is_taken_out_of_a_script_is_out_for_those_who_ask() {
    let mut store = Store::new("1".to_owned());
    let (source, removal) = (
        "if ARGV[1] == '5' then return 1 end return 0",
        Removal { name: "five", changes: &[("ARGV[1] == '5'", "false")] },
    );
    assert_eq!(eval(&mut store, source, Some(&removal)), Reply::Int(0));
    assert_eq!(eval(&mut store, source, None), Reply::Int(1));
}

#[test]
fn numbers_of_a_fixed_width_are_packed_and_unpacked() {
    let mut store = Store::new("1".to_owned());
    let source = "local packed = 'x' .. struct.pack('<dd', 1600000000000001, -3) .. 'y' \
                  local a, b, next = struct.unpack('<dd', packed, 2) \
                  return {#packed, string.format('%.0f', a), b, next, string.sub(packed, next)}";
    let said = eval(&mut store, source, None);
    let digits = Reply::bulk("1600000000000001");
    assert_eq!(said, Reply::Array(vec![Reply::Int(18), digits, Reply::Int(-3), Reply::Int(18), Reply::bulk("y")]));
    assert!(matches!(eval(&mut store, "return struct.unpack('<d', 'short')", None), Reply::Error(_)));
}

#[test]
fn what_is_packed_is_unpacked() {
    let mut store = Store::new("1".to_owned());
    let source = "local it = cmsgpack.unpack(cmsgpack.pack({a = 'x', b = 1600000000000001, c = -3, d = 'long' .. \
                  string.rep('y', 300)})) return {it.a, string.format('%.0f', it.b), it.c, #it.d}";
    let said = eval(&mut store, source, None);
    let parts = [Reply::bulk("x"), Reply::bulk("1600000000000001"), Reply::Int(-3), Reply::Int(304)];
    assert_eq!(said, Reply::Array(parts.into()));
}
