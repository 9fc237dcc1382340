//! The commands of histories, and how they are sent.

/// A key's number; [`key_name`] is its name on the server.
pub type KeyNumber = u16;
/// An element's number; [`member_name`] is its name on the server.
pub type MemberNumber = u8;

/// One command. Keys hold values of one type at most: the code that draws commands sees to that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryCommand {
    Del(Vec<KeyNumber>),
    /// From one key to another, whatever that holds.
    Copy(KeyNumber, KeyNumber),

    Get(KeyNumber),
    Set(KeyNumber, Vec<u8>),
    SetNx(KeyNumber, Vec<u8>),
    Incr(KeyNumber),
    Append(KeyNumber, Vec<u8>),
    GetDel(KeyNumber),
    MSet(Vec<(KeyNumber, Vec<u8>)>),
    MGet(Vec<KeyNumber>),

    SAdd(KeyNumber, Vec<MemberNumber>),
    SRem(KeyNumber, Vec<MemberNumber>),
    SIsMember(KeyNumber, MemberNumber),
    SCard(KeyNumber),
    SMembers(KeyNumber),
    SPop(KeyNumber),
    SMove(KeyNumber, KeyNumber, MemberNumber),
    SInter(Vec<KeyNumber>),
    SInterStore(KeyNumber, Vec<KeyNumber>),
    SUnionStore(KeyNumber, Vec<KeyNumber>),

    ZAdd(KeyNumber, Vec<(MemberNumber, i64)>),
    ZIncrBy(KeyNumber, i64, MemberNumber),
    ZRem(KeyNumber, Vec<MemberNumber>),
    ZScore(KeyNumber, MemberNumber),
    ZRank(KeyNumber, MemberNumber),
    /// The whole, with scores.
    ZRange(KeyNumber),
    ZPopMin(KeyNumber),
    /// All of the second to the first.
    ZRangeStore(KeyNumber, KeyNumber),
    /// With the sums of the scores.
    ZUnionStore(KeyNumber, Vec<KeyNumber>),

    HSet(KeyNumber, Vec<(MemberNumber, Vec<u8>)>),
    HGet(KeyNumber, MemberNumber),
    HDel(KeyNumber, Vec<MemberNumber>),
    HIncrBy(KeyNumber, MemberNumber, i64),
    HLen(KeyNumber),
    HGetAll(KeyNumber),
}

impl HistoryCommand {
    /// Whether it changes nothing, whatever there is.
    pub(super) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Get(_)
                | Self::MGet(_)
                | Self::SIsMember(..)
                | Self::SCard(_)
                | Self::SMembers(_)
                | Self::SInter(_)
                | Self::ZScore(..)
                | Self::ZRank(..)
                | Self::ZRange(_)
                | Self::HGet(..)
                | Self::HLen(_)
                | Self::HGetAll(_)
        )
    }

    pub fn keys(&self) -> Vec<KeyNumber> {
        match self {
            Self::Get(key)
            | Self::Set(key, _)
            | Self::SetNx(key, _)
            | Self::Incr(key)
            | Self::Append(key, _)
            | Self::GetDel(key)
            | Self::SAdd(key, _)
            | Self::SRem(key, _)
            | Self::SIsMember(key, _)
            | Self::SCard(key)
            | Self::SMembers(key)
            | Self::SPop(key)
            | Self::ZAdd(key, _)
            | Self::ZIncrBy(key, ..)
            | Self::ZRem(key, _)
            | Self::ZScore(key, _)
            | Self::ZRank(key, _)
            | Self::ZRange(key)
            | Self::ZPopMin(key)
            | Self::HSet(key, _)
            | Self::HGet(key, _)
            | Self::HDel(key, _)
            | Self::HIncrBy(key, ..)
            | Self::HLen(key)
            | Self::HGetAll(key) => vec![*key],
            Self::Copy(one, other) | Self::SMove(one, other, _) | Self::ZRangeStore(one, other) => {
                vec![*one, *other]
            }
            Self::Del(keys) | Self::MGet(keys) | Self::SInter(keys) => keys.clone(),
            Self::MSet(pairs) => pairs.iter().map(|(key, _)| *key).collect(),
            Self::SInterStore(target, keys)
            | Self::SUnionStore(target, keys)
            | Self::ZUnionStore(target, keys) => [&[*target], &keys[..]].concat(),
        }
    }

    /// As it is sent.
    pub fn arguments(&self) -> Vec<Vec<u8>> {
        let words = |words: &[&str]| -> Vec<Vec<u8>> {
            words.iter().map(|word| word.as_bytes().to_vec()).collect()
        };
        let named = |name: &str, keys: &[KeyNumber]| -> Vec<Vec<u8>> {
            let keys = keys.iter().map(|key| key_name(*key));
            std::iter::once(name.as_bytes().to_vec()).chain(keys).collect()
        };
        let members = |members: &[MemberNumber]| -> Vec<Vec<u8>> {
            members.iter().map(|member| member_name(*member)).collect()
        };
        let number = |number: i64| vec![number.to_string().into_bytes()];
        let (command, rest) = match self {
            Self::Del(keys) => (named("DEL", keys), vec![]),
            Self::Copy(from, to) => (named("COPY", &[*from, *to]), words(&["REPLACE"])),
            Self::Get(key) => (named("GET", &[*key]), vec![]),
            Self::Set(key, value) => (named("SET", &[*key]), vec![value.clone()]),
            Self::SetNx(key, value) => (named("SETNX", &[*key]), vec![value.clone()]),
            Self::Incr(key) => (named("INCR", &[*key]), vec![]),
            Self::Append(key, value) => (named("APPEND", &[*key]), vec![value.clone()]),
            Self::GetDel(key) => (named("GETDEL", &[*key]), vec![]),
            Self::MGet(keys) => (named("MGET", keys), vec![]),
            Self::MSet(pairs) => {
                let pairs = pairs.iter().flat_map(|(key, value)| [key_name(*key), value.clone()]);
                (words(&["MSET"]), pairs.collect())
            }
            Self::SAdd(key, some) => (named("SADD", &[*key]), members(some)),
            Self::SRem(key, some) => (named("SREM", &[*key]), members(some)),
            Self::SIsMember(key, member) => (named("SISMEMBER", &[*key]), members(&[*member])),
            Self::SCard(key) => (named("SCARD", &[*key]), vec![]),
            Self::SMembers(key) => (named("SMEMBERS", &[*key]), vec![]),
            Self::SPop(key) => (named("SPOP", &[*key]), vec![]),
            Self::SMove(from, to, member) => (named("SMOVE", &[*from, *to]), members(&[*member])),
            Self::SInter(keys) => (named("SINTER", keys), vec![]),
            Self::SInterStore(..) => (named("SINTERSTORE", &self.keys()), vec![]),
            Self::SUnionStore(..) => (named("SUNIONSTORE", &self.keys()), vec![]),
            Self::ZAdd(key, pairs) => {
                let pair =
                    |(member, score): &(MemberNumber, i64)| [number(*score), members(&[*member])];
                (named("ZADD", &[*key]), pairs.iter().flat_map(pair).flatten().collect())
            }
            Self::ZIncrBy(key, by, member) => {
                (named("ZINCRBY", &[*key]), [number(*by), members(&[*member])].concat())
            }
            Self::ZRem(key, some) => (named("ZREM", &[*key]), members(some)),
            Self::ZScore(key, member) => (named("ZSCORE", &[*key]), members(&[*member])),
            Self::ZRank(key, member) => (named("ZRANK", &[*key]), members(&[*member])),
            Self::ZRange(key) => (named("ZRANGE", &[*key]), words(&["0", "-1", "WITHSCORES"])),
            Self::ZPopMin(key) => (named("ZPOPMIN", &[*key]), vec![]),
            Self::ZRangeStore(to, from) => {
                (named("ZRANGESTORE", &[*to, *from]), words(&["0", "-1"]))
            }
            Self::ZUnionStore(to, keys) => {
                let sources = keys.iter().map(|key| key_name(*key));
                let count = number(keys.len() as i64);
                (named("ZUNIONSTORE", &[*to]), count.into_iter().chain(sources).collect())
            }
            Self::HSet(key, pairs) => {
                let pairs =
                    pairs.iter().flat_map(|(field, value)| [member_name(*field), value.clone()]);
                (named("HSET", &[*key]), pairs.collect())
            }
            Self::HGet(key, field) => (named("HGET", &[*key]), members(&[*field])),
            Self::HDel(key, fields) => (named("HDEL", &[*key]), members(fields)),
            Self::HIncrBy(key, field, by) => {
                (named("HINCRBY", &[*key]), [members(&[*field]), number(*by)].concat())
            }
            Self::HLen(key) => (named("HLEN", &[*key]), vec![]),
            Self::HGetAll(key) => (named("HGETALL", &[*key]), vec![]),
        };
        [command, rest].concat()
    }
}

/// `key:N`.
pub fn key_name(key: KeyNumber) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

/// `mN`.
pub fn member_name(member: MemberNumber) -> Vec<u8> {
    format!("m{member}").into_bytes()
}
