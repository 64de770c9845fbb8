//! Commands on keys.

use std::borrow::Cow;

use super::{
    reply::Reply,
    store::{Entry, Millis, Store},
    values::{Bound, SortedSet, Value, score, score_text},
};

/// What a command comes to: its answer, or the error that is its answer.
type Answer = Result<Reply, Reply>;
/// A field of a hash: its name and its value.
type Field = (Vec<u8>, Vec<u8>);

/// What `INFO memory` says of a server that evicts nothing.
const ABOUT_MEMORY: &str = "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";

fn wrong_number(name: &[u8]) -> Reply {
    Reply::err(&format!("wrong number of arguments for '{}' command", String::from_utf8_lossy(name).to_lowercase()))
}

fn integer(text: &[u8]) -> Result<i64, Reply> {
    let text = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| Reply::err("value is not an integer or out of range"))
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// The name of a command as the server compares it: clients write it as they like.
pub(super) fn in_capitals(name: &[u8]) -> Cow<'_, [u8]> {
    match name.iter().any(u8::is_ascii_lowercase) {
        true => name.to_ascii_uppercase().into(),
        false => name.into(),
    }
}

impl Store {
    /// Runs one command, which any connection may send and any script may call.
    pub fn command(&mut self, words: &[&[u8]]) -> Reply {
        let Some((name, arguments)) = words.split_first() else { return Reply::err("no command") };
        self.dispatch(&in_capitals(name), arguments).unwrap_or_else(|error| error)
    }

    fn dispatch(&mut self, name: &[u8], words: &[&[u8]]) -> Answer {
        match (name, words) {
            (b"GET", [key]) => self.text(key),
            (b"MGET", [_, ..]) => {
                let mut read = |key: &&[u8]| self.text(key).unwrap_or(Reply::Nil);
                Ok(Reply::Array(words.iter().map(&mut read).collect()))
            }
            (b"SET", [key, value, options @ ..]) => self.set(key, value, options),
            (b"SETRANGE", [key, offset, bytes]) => self.set_range(key, offset, bytes),
            (b"DEL", [_, ..]) => Ok(Reply::count(words.iter().filter(|key| self.remove(key)).count())),
            (b"EXISTS", [_, ..]) => Ok(Reply::count(words.iter().filter(|key| self.get(key).is_some()).count())),
            (b"TYPE", [key]) => Ok(Reply::Status(self.get(key).map_or("none", |entry| entry.value.kind()).into())),
            (b"PTTL", [key]) => Ok(Reply::Int(self.left(key))),
            (b"PEXPIRE", [key, ms]) => self.expire(key, integer(ms)?.saturating_add(self.ms())),
            (b"PEXPIREAT", [key, at]) => self.expire(key, integer(at)?),
            (b"PERSIST", [key]) => {
                Ok(Reply::Int(self.get_mut(key).and_then(|entry| entry.expires.take()).is_some().into()))
            }
            (b"HGET", [key, field]) => {
                Ok(Reply::optional(self.hash(key)?.and_then(|fields| find(fields, field).cloned())))
            }
            (b"HMGET", [key, fields @ ..]) if !fields.is_empty() => {
                let known = self.hash(key)?;
                let read = |field: &&[u8]| Reply::optional(known.and_then(|known| find(known, field).cloned()));
                Ok(Reply::Array(fields.iter().map(read).collect()))
            }
            (b"HLEN", [key]) => Ok(Reply::count(self.hash(key)?.map_or(0, <[_]>::len))),
            (b"HSET", [key, pairs @ ..]) if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
                let fields = self.hash_mut(key)?;
                Ok(Reply::count(pairs.chunks_exact(2).filter(|pair| put(fields, pair[0], pair[1])).count()))
            }
            (b"HSETNX", [key, field, value]) => {
                let fields = self.hash_mut(key)?;
                let is_new = find(fields, field).is_none();
                Ok(Reply::Int((is_new && put(fields, field, value)).into()))
            }
            (b"HDEL", [key, fields @ ..]) if !fields.is_empty() => self.delete_fields(key, fields),
            (b"ZADD", [key, b"NX" | b"nx", pairs @ ..]) if is_pairs(pairs) => self.add_members(key, pairs, Some(false)),
            (b"ZADD", [key, b"XX" | b"xx", pairs @ ..]) if is_pairs(pairs) => self.add_members(key, pairs, Some(true)),
            (b"ZADD", [key, pairs @ ..]) if is_pairs(pairs) => self.add_members(key, pairs, None),
            (b"ZREM", [key, members @ ..]) if !members.is_empty() => {
                let Some(set) = self.sorted_mut(key)? else { return Ok(Reply::Int(0)) };
                let removed = members.iter().filter(|member| set.remove(member)).count();
                self.tidy(key);
                Ok(Reply::count(removed))
            }
            (b"ZSCORE", [key, member]) => {
                let found = self.sorted(key)?.and_then(|set| set.score(member));
                Ok(Reply::optional(found.map(|score| score_text(score).into_bytes())))
            }
            (b"ZCARD", [key]) => Ok(Reply::count(self.sorted(key)?.map_or(0, |set| set.0.len()))),
            (b"ZCOUNT", [key, from, to]) => {
                let (from, to) = bounds(from, to)?;
                let all = self.sorted(key)?.map_or(&[][..], |set| &set.0);
                let is_within = |(score, _): &&(f64, Vec<u8>)| from.is_below(*score) && to.is_above(*score);
                Ok(Reply::count(all.iter().filter(is_within).count()))
            }
            (b"ZRANK", [key, member]) => {
                let place = self.sorted(key)?.and_then(|set| set.0.iter().position(|(_, its)| its == member));
                Ok(place.map_or(Reply::Nil, Reply::count))
            }
            (b"ZRANGE", [key, first, last, options @ ..]) => self.range(key, first, last, options, false),
            (b"ZREVRANGE", [key, first, last, options @ ..]) => self.range(key, first, last, options, true),
            (b"ZRANGEBYSCORE", [key, from, to, options @ ..]) => {
                let (from, to) = bounds(from, to)?;
                let (options, skipped, count) = limit(options)?;
                let with_scores = with_scores(options)?;
                let all = self.sorted(key)?.map_or(&[][..], |set| &set.0);
                let within = all.iter().filter(|(score, _)| from.is_below(*score) && to.is_above(*score));
                Ok(listed(within.skip(skipped).take(count), with_scores))
            }
            (b"ZREMRANGEBYSCORE", [key, from, to]) => {
                let (from, to) = bounds(from, to)?;
                let Some(set) = self.sorted_mut(key)? else { return Ok(Reply::Int(0)) };
                let before = set.0.len();
                set.0.retain(|(score, _)| !(from.is_below(*score) && to.is_above(*score)));
                let removed = before - set.0.len();
                self.tidy(key);
                Ok(Reply::count(removed))
            }
            (b"ZPOPMIN", [key]) => {
                let Some(set) = self.sorted_mut(key)? else { return Ok(Reply::Array(Vec::new())) };
                let (score, member) = set.0.remove(0);
                self.tidy(key);
                Ok(Reply::Array(vec![Reply::Bulk(member), Reply::bulk(score_text(score))]))
            }
            (b"TIME", []) => {
                let parts = [self.now / 1_000_000, self.now % 1_000_000];
                Ok(Reply::Array(parts.map(|part| Reply::bulk(part.to_string())).into()))
            }
            (b"PUBLISH", [channel, message]) => Ok(self.publish(channel, message)),
            (b"PUBSUB", [what, channels @ ..]) if is(what, "NUMSUB") => {
                let count = |channel: &&[u8]| self.channels.get(*channel).map_or(0, Vec::len);
                let pairs = channels.iter().flat_map(|name| [Reply::bulk(*name), Reply::count(count(name))]);
                Ok(Reply::Array(pairs.collect()))
            }
            (b"INFO", [section]) if is(section, "server") => Ok(Reply::bulk(self.about_server())),
            (b"INFO", [section]) if is(section, "memory") => Ok(Reply::bulk(ABOUT_MEMORY)),
            (b"FLUSHALL", _) => {
                self.flush();
                Ok(Reply::ok())
            }
            (b"PING", []) => Ok(Reply::Status("PONG".into())),
            (
                b"GET" | b"MGET" | b"SET" | b"SETRANGE" | b"DEL" | b"EXISTS" | b"TYPE" | b"PTTL" | b"PEXPIRE"
                | b"PEXPIREAT" | b"HGET" | b"HMGET" | b"HLEN" | b"HSET" | b"HSETNX" | b"HDEL" | b"ZADD" | b"ZREM"
                | b"ZSCORE" | b"ZCARD" | b"ZCOUNT" | b"ZRANK" | b"ZRANGE" | b"ZREVRANGE" | b"ZRANGEBYSCORE"
                | b"ZREMRANGEBYSCORE" | b"ZPOPMIN" | b"PUBLISH",
                _,
            ) => Err(wrong_number(name)),
            _ => panic!("the simulated server does not know the command {}", name.escape_ascii()),
        }
    }

    fn text(&self, key: &[u8]) -> Answer {
        match self.get(key).map(|entry| &entry.value) {
            None => Ok(Reply::Nil),
            Some(Value::Text(bytes)) => Ok(Reply::bulk(bytes.as_slice())),
            Some(_) => Err(Reply::wrong_type()),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: &[&[u8]]) -> Answer {
        let (mut expires, mut only_new) = (None, false);
        let mut words = options.iter();
        while let Some(word) = words.next() {
            if is(word, "NX") {
                only_new = true;
            } else if is(word, "PX") {
                let ms = integer(words.next().ok_or_else(|| Reply::err("syntax error"))?)?;
                if ms <= 0 {
                    return Err(Reply::err("invalid expire time in 'set' command"));
                }
                expires = Some(ms.saturating_add(self.ms()));
            } else {
                return Err(Reply::err("syntax error"));
            }
        }
        if only_new && self.get(key).is_some() {
            return Ok(Reply::Nil);
        }
        self.put(key, Entry { value: Value::Text(value.to_vec()), expires });
        Ok(Reply::ok())
    }

    /// Overwrites a part, and fills up with zeros before it; the expiry stays.
    fn set_range(&mut self, key: &[u8], offset: &[u8], bytes: &[u8]) -> Answer {
        let offset = usize::try_from(integer(offset)?).map_err(|_| Reply::err("offset is out of range"))?;
        if self.get_mut(key).is_none() {
            if bytes.is_empty() {
                return Ok(Reply::Int(0));
            }
            self.put(key, Entry { value: Value::Text(Vec::new()), expires: None });
        }
        let Some(Value::Text(text)) = self.get_mut(key).map(|entry| &mut entry.value) else {
            return Err(Reply::wrong_type());
        };
        if !bytes.is_empty() {
            let end = offset + bytes.len();
            text.resize(text.len().max(end), 0);
            text[offset..end].copy_from_slice(bytes);
        }
        Ok(Reply::count(text.len()))
    }

    /// -2 where there is no key, -1 where it never ends.
    fn left(&self, key: &[u8]) -> i64 {
        self.get(key).map_or(-2, |entry| entry.expires.map_or(-1, |expires| expires - self.ms()))
    }

    fn expire(&mut self, key: &[u8], at: Millis) -> Answer {
        let is_past = at <= self.ms();
        let Some(entry) = self.get_mut(key) else { return Ok(Reply::Int(0)) };
        entry.expires = Some(at);
        if is_past {
            self.remove(key);
        }
        Ok(Reply::Int(1))
    }

    fn hash(&self, key: &[u8]) -> Result<Option<&[Field]>, Reply> {
        match self.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Hash(fields)) => Ok(Some(fields)),
            Some(_) => Err(Reply::wrong_type()),
        }
    }

    fn hash_mut(&mut self, key: &[u8]) -> Result<&mut Vec<Field>, Reply> {
        if self.get_mut(key).is_none() {
            self.put(key, Entry { value: Value::Hash(Vec::new()), expires: None });
        }
        match self.get_mut(key).map(|entry| &mut entry.value) {
            Some(Value::Hash(fields)) => Ok(fields),
            _ => Err(Reply::wrong_type()),
        }
    }

    fn delete_fields(&mut self, key: &[u8], names: &[&[u8]]) -> Answer {
        let Some(entry) = self.get_mut(key) else { return Ok(Reply::Int(0)) };
        let Value::Hash(fields) = &mut entry.value else { return Err(Reply::wrong_type()) };
        let before = fields.len();
        fields.retain(|(field, _)| !names.contains(&field.as_slice()));
        let removed = before - fields.len();
        self.tidy(key);
        Ok(Reply::count(removed))
    }

    fn sorted(&self, key: &[u8]) -> Result<Option<&SortedSet>, Reply> {
        match self.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Sorted(set)) => Ok(Some(set)),
            Some(_) => Err(Reply::wrong_type()),
        }
    }

    fn sorted_mut(&mut self, key: &[u8]) -> Result<Option<&mut SortedSet>, Reply> {
        match self.get_mut(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::Sorted(set)) => Ok(Some(set)),
            Some(_) => Err(Reply::wrong_type()),
        }
    }

    /// `only` those that are there already, or that are not.
    fn add_members(&mut self, key: &[u8], pairs: &[&[u8]], only: Option<bool>) -> Answer {
        let scores: Option<Vec<f64>> = pairs.chunks_exact(2).map(|pair| score(pair[0])).collect();
        let scores = scores.ok_or_else(|| Reply::err("value is not a valid float"))?;
        if self.sorted(key)?.is_none() {
            if only == Some(true) {
                return Ok(Reply::Int(0));
            }
            self.put(key, Entry { value: Value::Sorted(SortedSet::default()), expires: None });
        }
        let mut added = 0;
        if let Some(set) = self.sorted_mut(key)? {
            for (score, pair) in scores.into_iter().zip(pairs.chunks_exact(2)) {
                let is_there = set.score(pair[1]).is_some();
                if only.is_none_or(|there| there == is_there) {
                    added += usize::from(set.insert(score, pair[1].to_vec()));
                }
            }
        }
        Ok(Reply::count(added))
    }

    fn range(&self, key: &[u8], first: &[u8], last: &[u8], options: &[&[u8]], is_reversed: bool) -> Answer {
        let (first, last, with_scores) = (integer(first)?, integer(last)?, with_scores(options)?);
        let all = self.sorted(key)?.map_or(&[][..], |set| &set.0);
        let length = i64::try_from(all.len()).unwrap_or(i64::MAX);
        let place = |at: i64| if at < 0 { at + length } else { at };
        let (first, last) = (place(first).max(0), place(last).min(length - 1));
        let count = usize::try_from(last - first + 1).unwrap_or(0);
        let skipped = usize::try_from(first).unwrap_or(0);
        if is_reversed {
            return Ok(listed(all.iter().rev().skip(skipped).take(count), with_scores));
        }
        Ok(listed(all.iter().skip(skipped).take(count), with_scores))
    }

    /// As `INFO server` says it: each vote asks for this.
    fn about_server(&self) -> String {
        let (run, time) = (&self.run_id, self.now.to_string());
        ["# Server\r\nredis_version:7.0.15\r\nrun_id:", run, "\r\nserver_time_usec:", &time, "\r\n"].concat()
    }
}

fn find<'a>(fields: &'a [(Vec<u8>, Vec<u8>)], name: &[u8]) -> Option<&'a Vec<u8>> {
    fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
}

/// True when the field is new.
fn put(fields: &mut Vec<(Vec<u8>, Vec<u8>)>, name: &[u8], value: &[u8]) -> bool {
    if let Some((_, known)) = fields.iter_mut().find(|(field, _)| field == name) {
        value.clone_into(known);
        return false;
    }
    fields.push((name.to_vec(), value.to_vec()));
    true
}

fn is_pairs(words: &[&[u8]]) -> bool {
    !words.is_empty() && words.len().is_multiple_of(2)
}

fn with_scores(options: &[&[u8]]) -> Result<bool, Reply> {
    match options {
        [] => Ok(false),
        [word] if is(word, "WITHSCORES") => Ok(true),
        _ => Err(Reply::err("syntax error")),
    }
}

/// Takes `LIMIT` off the end of the options: what is left of them, how many to skip, and how many to give.
fn limit<'a, 'b>(options: &'a [&'b [u8]]) -> Result<(&'a [&'b [u8]], usize, usize), Reply> {
    match options {
        [before @ .., word, skipped, count] if is(word, "LIMIT") => {
            let number = |text: &[u8]| integer(text).map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            Ok((before, number(skipped)?, number(count)?))
        }
        options => Ok((options, 0, usize::MAX)),
    }
}

fn bounds(from: &[u8], to: &[u8]) -> Result<(Bound, Bound), Reply> {
    let both = Bound::read(from).zip(Bound::read(to));
    both.ok_or_else(|| Reply::err("min or max is not a float"))
}

fn listed<'a>(members: impl Iterator<Item = &'a (f64, Vec<u8>)>, with_scores: bool) -> Reply {
    let mut parts = Vec::new();
    for (score, member) in members {
        parts.push(Reply::bulk(member.as_slice()));
        if with_scores {
            parts.push(Reply::bulk(score_text(*score)));
        }
    }
    Reply::Array(parts)
}
