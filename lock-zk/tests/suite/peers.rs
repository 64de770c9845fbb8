//! Programs that lock by another library, each in a process of its own: Curator in Java, kazoo in Python. What they are told to do
//! and what they say is in `tests/peers`.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use lock_core::{Clock, Locks, Mode};
use lock_zk::{Layout, ZooKeeper};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::OnceCell,
};

use crate::common::config;

/// How long another program may take to answer, the start of its Java machine beside many included.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// Where Debian has the classes.
const JAVA: &str = "/usr/share/java";
const CLASSES: [&str; 8] = [
    "curator-recipes.jar",
    "curator-framework.jar",
    "curator-client.jar",
    "guava.jar",
    "slf4j-api.jar",
    "slf4j-nop.jar",
    "zookeeper.jar",
    "zookeeper-jute.jar",
];

/// Debian's, which has Debian's kazoo.
const PYTHON: &str = "/usr/bin/python3";

/// The library of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    Curator,
    Kazoo,
}

/// The kind of a lock, as the other libraries have them: an `InterProcessMutex` or a `Lock`, and the two sides of a read-write lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Write,
    Read,
}

impl Kind {
    /// How such a lock is held.
    pub(crate) const fn mode(self) -> Mode {
        match self {
            Self::Mutex | Self::Write => Mode::Exclusive,
            Self::Read => Mode::Read,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

impl Library {
    const fn layout(self) -> Layout {
        match self {
            Self::Curator => Layout::Curator,
            Self::Kazoo => Layout::Kazoo,
        }
    }

    /// A connection of this library that shares locks with the other one's programs, by their whole paths.
    pub(crate) async fn locks(self, port: u16) -> Locks {
        let config = config(port).with_layout(self.layout()).with_root("/");
        Locks::new(ZooKeeper::connect(config).await.expect("a connection"))
    }

    async fn command(self) -> Command {
        match self {
            Self::Curator => {
                let mut command = Command::new("java");
                let classes = format!("{}:{}", compiled_peer().await.display(), curator_classes());
                // A short life: the quick compiler and the simple collector are enough.
                command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", &classes, "CuratorPeer"]);
                command
            }
            Self::Kazoo => {
                let mut command = Command::new(PYTHON);
                command.arg(sources().join("kazoo_peer.py"));
                command
            }
        }
    }
}

/// Where the sources of the programs are.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

/// What a program with Curator's locks is compiled and run with.
fn curator_classes() -> String {
    CLASSES.map(|class| format!("{JAVA}/{class}")).join(":")
}

/// The directory of the compiled program with Curator's locks. Java would compile the source at each start; the tests do it once.
async fn compiled_peer() -> &'static Path {
    static COMPILED: OnceCell<PathBuf> = OnceCell::const_new();
    let compiled = COMPILED.get_or_init(async || {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("curator-peer");
        let mut compiler = Command::new("javac");
        compiler.args(["-cp", &curator_classes(), "-d"]).arg(&directory).arg(sources().join("CuratorPeer.java"));
        let output = compiler.output().await.expect("javac is installed: cargo xtask setup");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        directory
    });
    compiled.await
}

/// A program with a lock of another library.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts a program with the lock `name`.
    pub(crate) async fn start(library: Library, port: u16, name: &str, kind: Kind) -> Self {
        let mut command = library.command().await;
        command.args([&port.to_string(), &format!("/{name}"), kind.name()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("java and python3 are installed: cargo xtask setup");
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut peer = Self { child, orders, answers: BufReader::new(answers).lines() };
        peer.hear("ready").await;
        peer
    }

    /// Has it do something.
    pub(crate) async fn tell(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    /// What it says next.
    pub(crate) async fn answer(&mut self) -> String {
        let answer = Clock::boot().timeout(ANSWER_LIMIT, self.answers.next_line()).await;
        if let Some(answer) = answer.expect("an answer in time").unwrap() {
            return answer;
        }
        let mut error = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut error).await.unwrap();
        panic!("the other program has ended: {error}");
    }

    /// Waits until it says that.
    pub(crate) async fn hear(&mut self, expected: &str) {
        let answer = self.answer().await;
        assert_eq!(answer, expected);
    }

    /// Has it do something, and returns what it says.
    pub(crate) async fn ask(&mut self, order: &str) -> String {
        self.tell(order).await;
        self.answer().await
    }
}
