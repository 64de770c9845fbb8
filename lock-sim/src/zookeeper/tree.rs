//! What the servers keep: one directory, its contenders' nodes, and what a transaction changes.

use lock_zk::protocol::queue::NUMBERS_END;

/// Where the counter of a directory sticks: all later nodes are given that number. Real servers do so at 2^31 - 1, which is
/// a million numbers behind the end that contenders keep to and not three.
const STUCK: i32 = NUMBERS_END + 2;

/// A session; 0 is none.
pub type SessionId = u32;

/// A contender's node.
#[derive(Debug, Clone)]
pub(super) struct Child {
    pub(super) name: String,
    pub(super) session: SessionId,
    /// The transaction that created it.
    pub(super) czxid: u64,
    /// The transaction that changed it last.
    pub(super) mzxid: u64,
    /// How often its data were written.
    pub(super) version: i32,
    /// When its contender arrived, whatever its name says: by this the checks go.
    pub(super) arrival: u64,
}

/// The directory as one server has it.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) directory: bool,
    /// What the next sequential node is numbered with.
    pub(super) counter: i32,
    pub(super) children: Vec<Child>,
    /// The transaction that changed last what is in the directory.
    pub(super) pzxid: u64,
}

/// What a transaction does.
#[derive(Debug, Clone)]
pub(super) enum Effect {
    Nothing,
    MakeDirectory,
    /// The server removes a container that is empty.
    Reap,
    Create {
        name: String,
        session: SessionId,
    },
    Write(String),
    Delete(String),
    /// Writes the mark and deletes, in one transaction.
    Marked(String),
    /// A reader's node in the place of a writer's, in one transaction.
    Replace {
        writer: String,
        reader: String,
        session: SessionId,
    },
    Close(SessionId),
}

/// What a watch may hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A node was written to.
    Changed(String),
    /// A node was deleted.
    Deleted(String),
    /// What is in the directory has changed, or the directory is gone.
    Children,
}

impl Tree {
    pub(super) fn child(&self, name: &str) -> Option<&Child> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.children.iter().map(|child| child.name.clone()).collect()
    }

    fn remove(&mut self, zxid: u64, name: &str) -> Option<Child> {
        let place = self.children.iter().position(|child| child.name == name)?;
        self.pzxid = zxid;
        Some(self.children.remove(place))
    }

    fn write(&mut self, zxid: u64, name: &str) -> bool {
        let Some(child) = self.children.iter_mut().find(|child| child.name == name) else { return false };
        child.version += 1;
        child.mzxid = zxid;
        true
    }

    fn create(&mut self, zxid: u64, name: &str, session: SessionId, arrival: u64) {
        self.counter = (self.counter + 1).min(STUCK);
        self.pzxid = zxid;
        let child = Child { name: name.to_owned(), session, czxid: zxid, mzxid: zxid, version: 0, arrival };
        self.children.push(child);
    }

    /// Does what the transaction `zxid` does, and hands what may be heard of it to `tell`, in its order.
    pub(super) fn apply(&mut self, zxid: u64, effect: &Effect, mut tell: impl FnMut(News)) {
        match effect {
            Effect::Nothing => {}
            Effect::MakeDirectory => (self.directory, self.counter, self.pzxid) = (true, 0, zxid),
            Effect::Reap => {
                self.directory = false;
                tell(News::Children);
            }
            Effect::Create { name, session } => {
                self.create(zxid, name, *session, zxid);
                tell(News::Children);
            }
            Effect::Write(name) => {
                if self.write(zxid, name) {
                    tell(News::Changed(name.clone()));
                }
            }
            Effect::Delete(name) => {
                if self.remove(zxid, name).is_some() {
                    tell(News::Deleted(name.clone()));
                    tell(News::Children);
                }
            }
            Effect::Marked(name) => {
                if self.remove(zxid, name).is_some() {
                    tell(News::Changed(name.clone()));
                    tell(News::Deleted(name.clone()));
                    tell(News::Children);
                }
            }
            Effect::Replace { writer, reader, session } => {
                let arrival = self.remove(zxid, writer).map_or(zxid, |child| child.arrival);
                self.create(zxid, reader, *session, arrival);
                // The reader's node comes first in the transaction.
                tell(News::Children);
                tell(News::Deleted(writer.clone()));
            }
            Effect::Close(session) => {
                let (gone, kept) = self.children.drain(..).partition(|child| child.session == *session);
                self.children = kept;
                let gone: Vec<Child> = gone;
                for child in gone {
                    self.pzxid = zxid;
                    tell(News::Deleted(child.name));
                    tell(News::Children);
                }
            }
        }
    }
}
