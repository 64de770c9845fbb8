//! The simulated Redis server beside a real one: whatever clients of the shipped backends ask of it while they compete, a real
//! server is asked, too, on as many connections and at the same times of its own clock, which the test moves. Both have to
//! answer alike, to tell the same listeners, and to keep the same keys for the same time.

use std::{
    collections::BTreeMap,
    io::{self, Cursor, Read, Write as _},
    net::TcpStream,
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use lock_core::Locks;
use lock_lab::servers::{Redis as RealRedis, RedisOptions};
use lock_redis::{Config, Redis, Strategy, node::NodeConfig, wire::Network};
use lock_redlock::{InitOptions, Redlock};
use lock_sim::{
    Chance, LocalClock, MS, SECOND,
    contest::{Habits, Oracle, compete},
    redis::{Entry, Fleet, HostNetwork, Recorded, Value as Kept, address},
    world::{HostClocks, Wires, World},
};
use redis::{Parser, Value};

/// How many contests are compared for each backend.
const CONTESTS: u64 = 8;
/// Longer than anything here takes, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(30);

/// Everything that a server keeps: names, types, ends, and what they hold in an order of its own.
const DUMP: &str = "
    local all, keys = {}, redis.call('KEYS', '*')
    table.sort(keys)
    for _, key in ipairs(keys) do
      local kind, held = redis.call('TYPE', key).ok, nil
      if kind == 'string' then held = {redis.call('GET', key)} end
      if kind == 'zset' then held = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
      if kind == 'hash' then
        local names = redis.call('HKEYS', key)
        table.sort(names)
        held = {}
        for _, name in ipairs(names) do held[#held + 1], held[#held + 2] = name, redis.call('HGET', key, name) end
      end
      all[#all + 1] = {key, kind, redis.call('PEXPIRETIME', key), held}
    end
    return all";

/// What was asked of a server, and what it kept in the end.
struct Played {
    record: Vec<Recorded>,
    kept: Vec<(Vec<u8>, Entry)>,
    run_id: String,
    ended_at: u64,
}

#[derive(Clone, Copy)]
enum What {
    Lock,
    /// By the strategy `plain`.
    Plain,
    Semaphore,
    Quorum,
}

/// Clients compete on slow wires; what was asked of the first server.
fn contest(seed: u64, what: What) -> Played {
    let mut chance = Chance::new(seed);
    let wires = Wires { most: 20 * MS, late: 200 * MS, late_per_mille: 60, lost_per_mille: 40, ..Wires::default() };
    let mut world = World::<()>::new(Chance::new(seed), wires);
    let hosts = [0, 1, 2, 3].map(|_| world.add_host(HostClocks::new(0, 0, chance.signed(-50_000_000, 50_000_000))));
    let mut fleet = Fleet::default();
    let count = if matches!(what, What::Quorum) { 3 } else { 1 };
    let servers: Vec<_> =
        (0..count).map(|_| fleet.add(&mut world, LocalClock::new(2_000_000_000 * SECOND, 0), None)).collect();
    fleet.at(servers[0], 0).keep_record();
    let oracle = Oracle::default();
    for host in hosts {
        let (context, oracle, own) = (world.context(host), oracle.clone(), Chance::new(chance.below(u64::MAX)));
        let network: Arc<dyn Network> = Arc::new(HostNetwork(host));
        let nodes = servers.iter().map(|server| address(*server)).map(|at| NodeConfig::new(at.host, at.port)).collect();
        let habits = Habits {
            reads: 40,
            tries: 20,
            limits: 40,
            leaves: 20,
            drops: 20,
            downgrades: 30,
            ends: 20,
            least: Duration::ZERO,
            crowds: false,
            ttl: Duration::from_millis(400),
            pause: 200 * MS,
            hold: 400 * MS,
            until: 15 * SECOND,
            permits: NonZeroU32::new(2).filter(|_| matches!(what, What::Semaphore)),
            delay: chance
                .one_in(2)
                .then(|| Duration::from_millis(100))
                .filter(|_| !matches!(what, What::Quorum | What::Plain)),
            shares: !matches!(what, What::Plain),
            counts: [0; 4],
        };
        let at = address(servers[0]);
        world.spawn(host, async move {
            let clock = context.clock();
            let locks = match what {
                What::Lock | What::Plain | What::Semaphore => {
                    let mut config = Config::new(at.host, at.port).with_ttl(Duration::from_millis(300));
                    if matches!(what, What::Plain) {
                        config = config.with_strategy(Strategy::Plain { look_again: Duration::from_millis(50) });
                    }
                    let config = config.with_network(network).with_response_timeout(Duration::from_millis(100));
                    Locks::new(Redis::connect_in(config, context).await.unwrap())
                }
                What::Quorum => {
                    let mut config = lock_redlock::Config::new(nodes).unwrap().with_network(&network);
                    config.ttl = Some(Duration::from_millis(400));
                    config.node_timeout = Duration::from_millis(100);
                    if host.place() == 0 {
                        let marked = InitOptions::new().with_no_holders();
                        while lock_redlock::init_in(&config, marked, context.clone()).await.is_err() {}
                    }
                    loop {
                        match Redlock::connect_in(config.clone(), context.clone()).await {
                            Ok(redlock) => break Locks::new(redlock),
                            Err(_) => clock.sleep(Duration::from_millis(50)).await,
                        }
                    }
                }
            };
            compete(locks, clock, host, habits, oracle, own).await;
        });
    }
    while let Some(happening) = world.next() {
        fleet.see_to(&mut world, happening);
    }
    let now = world.now();
    let waiting: Vec<_> = oracle.running().iter().map(|host| host.place()).collect();
    assert!(waiting.is_empty(), "{waiting:?} do not come to their ends, at {now}");
    let record = fleet.at(servers[0], now).take_record();
    let kept = fleet.store(servers[0], now).keys().map(|(key, entry)| (key.to_vec(), entry.clone()));
    let mut kept: Vec<_> = kept.collect();
    // As the other side lists them.
    kept.sort_by(|(one, _), (other, _)| one.cmp(other));
    let run_id = fleet.store(servers[0], now).run_id().to_owned();
    let ended_at = fleet.clock(servers[0]).at(now) / 1_000;
    Played { record, kept, run_id, ended_at }
}

/// A stream whose reads go on after the whole process stood still, which interrupts those that have a limit.
struct Uninterrupted(TcpStream);

impl Read for Uninterrupted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

struct Connection {
    stream: Uninterrupted,
    parser: Parser,
    id: i64,
}

impl Connection {
    fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut connection = Self { stream: Uninterrupted(stream), parser: Parser::new(), id: 0 };
        let Value::Int(id) = connection.ask(&["CLIENT", "ID"]) else { panic!("no id") };
        connection.id = id;
        connection
    }

    fn ask(&mut self, words: &[&str]) -> Value {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        self.stream.0.write_all(&command.get_packed_command()).unwrap();
        self.next()
    }

    fn next(&mut self) -> Value {
        self.parser.parse_value(&mut self.stream).unwrap()
    }
}

/// Asks a real server what the simulated one was asked.
fn replay(real: &RealRedis, played: &Played, what: &str) {
    let mut control = Connection::open(real.port());
    control.ask(&["FLUSHALL"]);
    control.ask(&["SCRIPT", "FLUSH"]);
    let Value::BulkString(info) = control.ask(&["INFO", "server"]) else { panic!("no information") };
    let info = String::from_utf8(info).unwrap();
    let real_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned();
    let same = |value: Value| normal(value, &real_id, &played.run_id);
    let mut connections: BTreeMap<u32, Connection> = BTreeMap::new();
    for (step, recorded) in played.record.iter().enumerate() {
        match recorded {
            Recorded::Connected(number) => {
                connections.insert(*number, Connection::open(real.port()));
            }
            Recorded::Ended(number) => {
                if let Some(gone) = connections.remove(number) {
                    control.ask(&["CLIENT", "KILL", "ID", &gone.id.to_string()]);
                }
            }
            Recorded::Arrived { at, connection, bytes, outputs } => {
                real.stop_clock_at(Duration::from_micros(*at)).unwrap();
                connections.get_mut(connection).unwrap().stream.0.write_all(bytes).unwrap();
                for (to, bytes) in outputs {
                    let Some(there) = connections.get_mut(to) else { continue };
                    // A parser that has seen an end reads nothing more; what is sent at once is whole.
                    let (mut parser, mut rest) = (Parser::new(), Cursor::new(bytes));
                    while let Ok(said) = parser.parse_value(&mut rest) {
                        let (said, really) = (normal(said, "", ""), same(there.next()));
                        let asked = String::from_utf8_lossy(bytes_of(recorded)).into_owned();
                        assert_eq!(said, really, "{what}, step {step}: the model, the server, after {asked}");
                    }
                }
            }
        }
    }
    real.stop_clock_at(Duration::from_micros(played.ended_at)).unwrap();
    let kept = same(control.ask(&["EVAL", DUMP, "0"]));
    assert_eq!(dump(&played.kept), kept, "{what}: what the model keeps, and the server");
}

fn bytes_of(recorded: &Recorded) -> &[u8] {
    match recorded {
        Recorded::Arrived { bytes, .. } => bytes,
        _ => &[],
    }
}

/// An answer without what two servers may say in different words.
fn normal(value: Value, real_id: &str, model_id: &str) -> Value {
    match value {
        Value::Array(parts) => Value::Array(parts.into_iter().map(|part| normal(part, real_id, model_id)).collect()),
        Value::BulkString(bytes) if bytes.starts_with(b"# ") => Value::Okay,
        Value::BulkString(bytes) if !real_id.is_empty() && bytes == real_id.as_bytes() => {
            Value::BulkString(model_id.as_bytes().to_vec())
        }
        Value::ServerError(error) => Value::SimpleString(error.code().to_owned()),
        other => other,
    }
}

/// What the model keeps, as [`DUMP`] says it.
fn dump(kept: &[(Vec<u8>, Entry)]) -> Value {
    let bulk = |text: &[u8]| Value::BulkString(text.to_vec());
    let key = |(key, entry): &(Vec<u8>, Entry)| {
        let held = match &entry.value {
            Kept::Text(text) => vec![bulk(text)],
            Kept::Sorted(set) => {
                set.0.iter().flat_map(|(score, member)| [bulk(member), bulk(score.to_string().as_bytes())]).collect()
            }
            Kept::Hash(fields) => {
                let mut fields = fields.clone();
                fields.sort();
                fields.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect()
            }
        };
        let parts = [bulk(key), bulk(entry.value.kind().as_bytes()), Value::Int(entry.expires.unwrap_or(-1))];
        Value::Array(parts.into_iter().chain([Value::Array(held)]).collect())
    };
    Value::Array(kept.iter().map(key).collect())
}

async fn compare(name: &str, what: What) {
    let real = RealRedis::start_as_told(RedisOptions::default().with_own_clock(true)).await.unwrap();
    for seed in 0..CONTESTS {
        let played = std::thread::spawn(move || contest(seed, what)).join().unwrap();
        assert!(played.record.len() > 100, "{name}: contest {seed} asks for little: {}", played.record.len());
        replay(&real, &played, &format!("{name}, contest {seed}"));
    }
}

#[tokio::test]
async fn a_real_server_answers_and_keeps_what_the_model_does_for_a_lock() {
    compare("a lock", What::Lock).await;
}

#[tokio::test]
async fn a_real_server_answers_and_keeps_what_the_model_does_for_a_plain_lock() {
    compare("a plain lock", What::Plain).await;
}

#[tokio::test]
async fn a_real_server_answers_and_keeps_what_the_model_does_for_a_semaphore() {
    compare("a semaphore", What::Semaphore).await;
}

#[tokio::test]
async fn a_real_server_answers_and_keeps_what_the_model_does_as_a_member_of_a_quorum() {
    compare("a quorum", What::Quorum).await;
}
