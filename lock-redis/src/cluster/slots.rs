//! Which part of a cluster has which slot: plain values, without a wire.

use std::{cmp::Reverse, sync::LazyLock};

use redis::Value;

use crate::node::Address;

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// In place of a shard: nobody has the slot.
const NOBODY: u16 = u16::MAX;

/// What stands between the first brace of a key and the first closing one after it, if anything does.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty())
}

/// The slot of a key: that of its hash tag, or of all of it where it has none.
pub(crate) fn slot_of(key: &str) -> u16 {
    let hashed = hash_tag(key).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

/// The least number that is a hash tag of each slot.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    for tag in 0_u32.. {
        let of_slot = &mut tags[usize::from(slot_of(&tag.to_string()))];
        if of_slot.is_none() {
            *of_slot = Some(tag);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
});

/// A hash tag of that slot.
pub(crate) fn tag_of(slot: u16) -> u32 {
    TAGS[usize::from(slot)]
}

/// One server of a Redis Cluster, with its node id and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterMember {
    /// The node id, which the cluster gives a server for as long as the server lives.
    pub(crate) id: String,
    pub(crate) address: Address,
}

/// A range of consecutive slots, and the servers that have them, the primary first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) members: Vec<ClusterMember>,
}

/// One shard of a cluster: a primary and its replicas. It is the same shard after a failover.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shard {
    key: u64,
    /// The primary first.
    members: Vec<ClusterMember>,
}

/// Which shard of a cluster has which slot, as far as is known. It may be out of date: a server that is asked in error says
/// so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotLayout {
    shards: Vec<Shard>,
    /// For each slot the place of its shard in `shards`.
    owners: Vec<u16>,
    next_key: u64,
}

impl Default for SlotLayout {
    fn default() -> Self {
        Self { shards: Vec::new(), owners: vec![NOBODY; usize::from(SLOTS)], next_key: 0 }
    }
}

impl SlotLayout {
    /// What is known now that somebody has said this. A shard keeps its key for as long as it keeps some of its members.
    #[must_use]
    pub(crate) fn learn(&self, ranges: &[SlotRange]) -> Self {
        let mut groups: Vec<&[ClusterMember]> = Vec::new();
        for range in ranges {
            if !groups.iter().any(|group| is_led_by(group, &range.members)) {
                groups.push(&range.members);
            }
        }
        let known = self.recognize(&groups);
        let mut learned = Self { next_key: self.next_key, ..Self::default() };
        for (members, known) in groups.iter().zip(known) {
            let key = known.unwrap_or_else(|| {
                learned.next_key += 1;
                learned.next_key
            });
            learned.shards.push(Shard { key, members: members.to_vec() });
        }
        for range in ranges {
            let place = learned.shards.iter().position(|shard| is_led_by(&shard.members, &range.members));
            let place = place.and_then(|place| u16::try_from(place).ok()).unwrap_or(NOBODY);
            learned.owners[usize::from(range.first)..=usize::from(range.last)].fill(place);
        }
        learned
    }

    /// Which known shard each of these groups of servers is: the one with which it has the most in common.
    fn recognize(&self, groups: &[&[ClusterMember]]) -> Vec<Option<u64>> {
        let mut alike = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            for shard in &self.shards {
                let common =
                    group.iter().filter(|member| shard.members.iter().any(|known| known.id == member.id)).count();
                if common > 0 {
                    alike.push((2 * common + usize::from(is_led_by(group, &shard.members)), at, shard.key));
                }
            }
        }
        alike.sort_by_key(|(common, ..)| Reverse(*common));
        let mut known = vec![None; groups.len()];
        for (_, at, key) in alike {
            if known[at].is_none() && !known.contains(&Some(key)) {
                known[at] = Some(key);
            }
        }
        known
    }

    /// The key of the shard that has this slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<u64> {
        let place = self.owners.get(usize::from(slot))?;
        self.shards.get(usize::from(*place)).map(|shard| shard.key)
    }

    /// Notes that the server at `address` is the primary that has this slot. Gives the key of its shard; `None` when
    /// nobody knows that server.
    pub(crate) fn moved(&mut self, slot: u16, address: &Address) -> Option<u64> {
        let place =
            self.shards.iter().position(|shard| shard.members.iter().any(|member| member.address == *address))?;
        let shard = &mut self.shards[place];
        if let Some(at) = shard.members.iter().position(|member| member.address == *address) {
            shard.members.swap(0, at);
        }
        *self.owners.get_mut(usize::from(slot))? = u16::try_from(place).ok()?;
        Some(shard.key)
    }

    /// The key of the shard to which the server at this address belongs.
    pub(crate) fn shard_at(&self, address: &Address) -> Option<u64> {
        let shard = self.shards.iter().find(|shard| shard.members.iter().any(|member| member.address == *address))?;
        Some(shard.key)
    }

    /// The primary of a shard.
    pub(crate) fn primary(&self, key: u64) -> Option<&Address> {
        self.members(key).first().map(|member| &member.address)
    }

    /// All servers of a shard, the primary first; none if there is no such shard (any more).
    pub(crate) fn members(&self, key: u64) -> &[ClusterMember] {
        self.shards.iter().find(|shard| shard.key == key).map_or(&[], |shard| &shard.members)
    }

    /// The keys of all shards.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> {
        self.shards.iter().map(|shard| shard.key)
    }

    /// The addresses of all servers.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.shards.iter().flat_map(|shard| &shard.members).map(|member| &member.address)
    }
}

fn is_led_by(group: &[ClusterMember], other: &[ClusterMember]) -> bool {
    group.first().map(|member| &member.id) == other.first().map(|member| &member.id)
}

/// Reads the answer to `CLUSTER SLOTS` of the server at `asked`; `None` when it is none, or names no slots.
pub(crate) fn ranges(answer: &Value, asked: &Address) -> Option<Vec<SlotRange>> {
    let Value::Array(parts) = answer else { return None };
    let ranges: Vec<_> = parts.iter().map(|part| range(part, asked)).collect::<Option<_>>()?;
    (!ranges.is_empty()).then_some(ranges)
}

fn range(part: &Value, asked: &Address) -> Option<SlotRange> {
    let Value::Array(parts) = part else { return None };
    let [Value::Int(first), Value::Int(last), members @ ..] = parts.as_slice() else { return None };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let members: Vec<_> = members.iter().map(|part| member(part, asked)).collect::<Option<_>>()?;
    (first <= last && last < SLOTS && !members.is_empty()).then_some(SlotRange { first, last, members })
}

fn member(part: &Value, asked: &Address) -> Option<ClusterMember> {
    let Value::Array(parts) = part else { return None };
    let [host, Value::Int(port), rest @ ..] = parts.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    // A server that does not know its own name means the one under which it was asked.
    let host = if host.is_empty() || host == "?" { &asked.host } else { host };
    let address = Address::new(host, u16::try_from(*port).ok()?);
    let id = match rest.first() {
        Some(Value::BulkString(id)) => String::from_utf8_lossy(id).into_owned(),
        // Servers of before version 4 give none.
        _ => address.to_string(),
    };
    Some(ClusterMember { id, address })
}

#[cfg(test)]
mod tests;
