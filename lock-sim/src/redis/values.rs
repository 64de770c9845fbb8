//! What a key can hold.

/// What a key holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Bytes.
    Text(Vec<u8>),
    /// Fields, in the order in which they came.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// Members with their scores.
    Sorted(SortedSet),
}

impl Value {
    /// As the server calls it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::Sorted(_) => "zset",
        }
    }

    /// Whether the key goes because nothing is left in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(fields) => fields.is_empty(),
            Self::Sorted(set) => set.0.is_empty(),
        }
    }
}

/// Members by their scores, and at one score by their bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SortedSet(pub Vec<(f64, Vec<u8>)>);

impl SortedSet {
    /// The score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.0.iter().find(|(_, its)| its == member).map(|(score, _)| *score)
    }

    /// Adds a member or moves it; true when it is new.
    pub fn insert(&mut self, score: f64, member: Vec<u8>) -> bool {
        let is_new = !self.remove(&member);
        let place = self.0.partition_point(|(its, other)| (*its, other.as_slice()) < (score, member.as_slice()));
        self.0.insert(place, (score, member));
        is_new
    }

    /// Removes a member; false when it is not there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let place = self.0.iter().position(|(_, its)| its == member);
        place.is_some_and(|place| {
            self.0.remove(place);
            true
        })
    }
}

/// One bound of a range of scores in a sorted set, inclusive or exclusive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    score: f64,
    is_open: bool,
}

impl Bound {
    /// Reads `5`, `(5`, `-inf` and the like.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let (text, is_open) = match text.strip_prefix(b"(") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        score(text).map(|score| Self { score, is_open })
    }

    pub(super) fn is_below(self, score: f64) -> bool {
        if self.is_open { self.score < score } else { self.score <= score }
    }

    pub(super) fn is_above(self, score: f64) -> bool {
        if self.is_open { self.score > score } else { self.score >= score }
    }
}

/// Reads a score.
pub(super) fn score(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|score: &f64| !score.is_nan())
}

/// Writes a score as the server does, in 17 digits.
pub(super) fn score_text(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    // Scores of locks are whole, and below 10^17.
    format!("{score}")
}
