//! What clients do: units of commands on few keys. Money goes from account to account, and twins
//! are always written together, so that half a unit shows in the sum of the accounts, or in twins
//! that differ.

use bobbin_server::base::random::Random;

use super::{CommandWords, below, words};

pub const ACCOUNTS: usize = 5;
pub const TWINS: usize = 3;
pub const DATABASES: usize = 2;

/// How a unit's commands become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitForm {
    Transaction,
    Script,
    Function,
    ScriptInTransaction,
}

/// Carries out the commands that `ARGV` holds, each behind the number of its words. A script goes
/// on after what fails, unless it belongs to more: with no memory left its first write is refused,
/// and not those behind it.
const BODY: &str = "
local at = 1
while at <= #ARGV do
    local count = tonumber(ARGV[at])
    local key = ARGV[at + 2] or ''
    local belongs = string.find(key, '^account:') or string.find(key, '^one:') or string.find(key, '^two:')
    local call = belongs and redis.call or redis.pcall
    call(unpack(ARGV, at + 1, at + count))
    at = at + count + 1
end
return 'done'";

/// What makes the functions that units call.
pub fn library() -> CommandWords {
    let source = format!(
        "#!lua name=units\nredis.register_function('unit', function(KEYS, ARGV) {BODY}\nend)"
    );
    ["FUNCTION", "LOAD", "REPLACE", &source].map(str::to_owned).into()
}

/// The requests that have a unit carried out. `number` tells it from all others.
pub fn unit(random: &mut Random, number: u64) -> Vec<CommandWords> {
    let mut commands = Vec::new();
    for _ in 0..below(random, 4) {
        commands.push(single(random));
    }
    match below(random, 3) {
        0 => {
            let [from, to] = [0; 2].map(|_| below(random, ACCOUNTS));
            let amount = below(random, 100);
            commands.push(words(&format!("DECRBY account:{from} {amount}")));
            commands.extend((0..below(random, 2)).map(|_| single(random)));
            commands.push(words(&format!("INCRBY account:{to} {amount}")));
        }
        1 => {
            let twin = below(random, TWINS);
            commands.push(words(&format!("SET one:{twin} {number}")));
            let between = (0..below(random, 3)).map(|_| single(random));
            commands.extend(between.filter(|command| !command[1].starts_with("one:")));
            commands.push(words(&format!("SET two:{twin} {number}")));
        }
        _ => {
            commands.push(words(&format!("SET last {number}")));
            commands.push(words(&format!("PUBLISH units unit-{number}-")));
            commands.push(words(&format!("SET unit-{number}- 1")));
            commands.push(words(&format!("DEL unit-{number}-")));
        }
    }
    let forms = [
        UnitForm::Transaction,
        UnitForm::Script,
        UnitForm::Function,
        UnitForm::ScriptInTransaction,
    ];
    let form = forms[below(random, forms.len())];
    requests(form, &commands, below(random, 2) == 0)
}

/// `declares`: scripts name the keys that they use.
fn requests(form: UnitForm, commands: &[CommandWords], declares: bool) -> Vec<CommandWords> {
    let by_script = |begin: &[&str], commands: &[CommandWords]| {
        let mut request: CommandWords = begin.iter().map(|&word| word.to_owned()).collect();
        let mut keys: Vec<&String> = Vec::new();
        if declares {
            keys = commands.iter().flatten().filter(|word| is_key(word)).collect();
        }
        request.push(keys.len().to_string());
        request.extend(keys.into_iter().cloned());
        for command in commands {
            request.push(command.len().to_string());
            request.extend_from_slice(command);
        }
        request
    };
    match form {
        UnitForm::Script => vec![by_script(&["EVAL", BODY], commands)],
        UnitForm::Function => vec![by_script(&["FCALL", "unit"], commands)],
        UnitForm::Transaction => {
            let ends = [words("MULTI"), words("EXEC")];
            [&ends[..1], commands, &ends[1..]].concat()
        }
        UnitForm::ScriptInTransaction => {
            let (by, alone) = commands.split_at(commands.len() / 2);
            let mut all = vec![words("MULTI"), by_script(&["EVAL", BODY], by)];
            all.extend_from_slice(alone);
            all.push(words("EXEC"));
            all
        }
    }
}

fn is_key(word: &str) -> bool {
    word == "last" || word.contains(':') || word.starts_with("unit-")
}

/// A command that does no harm to accounts and twins.
pub fn single(random: &mut Random) -> CommandWords {
    let number = below(random, 1000);
    let mut key = |kind: &str| format!("{kind}:{}", below(random, 3));
    let [string, other] = ["string", "string"].map(&mut key);
    let [list, list2] = ["list", "list"].map(&mut key);
    let [set, set2, set3] = ["set", "set", "set"].map(&mut key);
    let [hash, hash2, zset, zset2] = ["hash", "hash", "zset", "zset"].map(&mut key);
    let stream = key("stream");
    let some = number % 7;
    let twin = format!("{}", number % TWINS);
    words(&match below(random, 58) {
        0 => format!("SET {string} {number}"),
        1 => format!("SET {string} {number} PX {}", 1 + number),
        2 => format!("APPEND {string} {some}"),
        3 => format!("SETRANGE {string} {some} x"),
        4 => format!("GETDEL {string}"),
        5 => format!("DEL {string} {list} {set}"),
        6 => format!("UNLINK {hash} {zset}"),
        7 => format!("PEXPIRE {string} {number}"),
        8 => format!("PEXPIRE {list} {number}"),
        9 => format!("PERSIST {string}"),
        10 => format!("RENAME {string} {other}"),
        11 => format!("RENAMENX {list} {list2}"),
        12 => format!("COPY {set} {set2} REPLACE"),
        13 => format!("RPUSH {list} {number} {some}"),
        14 => format!("LPOP {list} 2"),
        15 => format!("LMOVE {list} {list2} LEFT RIGHT"),
        16 => format!("LTRIM {list} 0 5"),
        17 => format!("LINSERT {list} BEFORE {some} {number}"),
        18 => format!("SADD {set} {some} {number}"),
        19 => format!("SPOP {set} 2"),
        20 => format!("SUNIONSTORE {set} {set2} {set3}"),
        21 => format!("SINTERSTORE {set} {set2} {set3}"),
        22 => format!("SMOVE {set} {set2} {some}"),
        23 => format!("HSET {hash} {some} {number}"),
        24 => format!("HINCRBY {hash} {some} 1"),
        25 => format!("HINCRBYFLOAT {hash} {some} 0.1"),
        26 => format!("HPEXPIRE {hash} {number} FIELDS 1 {some}"),
        27 => format!("HDEL {hash} {some} 0"),
        28 => format!("ZADD {zset} {number} {some}"),
        29 => format!("ZINCRBY {zset} 1.5 {some}"),
        30 => format!("ZPOPMIN {zset}"),
        31 => format!("ZUNIONSTORE {zset} 2 {zset} {zset2}"),
        32 => format!("ZRANGESTORE {zset} {zset2} 0 3"),
        33 => format!("XADD {stream} * field {number}"),
        34 => format!("XTRIM {stream} MAXLEN 3"),
        35 => format!("INCRBYFLOAT {string} 0.5"),
        36 => format!("GETEX {string} PX {}", 1 + number),
        37 => format!("SORT {list} BY nosort STORE {list2}"),
        38 => format!("PFADD hll:{some} {number}"),
        39 => format!("MSET one:{twin} {number} two:{twin} {number}"),
        40 => format!("MSETNX one:{twin} {number} two:{twin} {number}"),
        41 => format!("DEL one:{twin} two:{twin}"),
        42 => format!("GET {string}"),
        43 => format!("LRANGE {list} 0 -1"),
        44 => format!("SETBIT {string} {number} 1"),
        45 => format!("HPERSIST {hash} FIELDS 1 {some}"),
        46 => format!("HSETEX {hash} KEEPTTL FIELDS 2 {some} {number} 0 {some}"),
        47 => format!("HSETEX {hash} PX {} FIELDS 1 {some} {number}", 1 + number),
        48 => format!("HGETEX {hash} PX {} FIELDS 2 {some} 1", 1 + number),
        49 => format!("HGETEX {hash} PERSIST FIELDS 1 {some}"),
        50 => format!("HSETNX {hash} {some} {number}"),
        51 => format!("HPEXPIRE {hash} {number} LT FIELDS 1 {some}"),
        52 => format!("HGETDEL {hash} FIELDS 1 {some}"),
        53 => format!("COPY {hash} {hash2} REPLACE"),
        54 => format!("SORT {list} ALPHA BY string:* GET hash:*->0 GET # STORE {list2}"),
        55 => format!("PEXPIRE {hash} {}", 1000 * number),
        56 => format!("HGETDEL {hash} FIELDS 2 {some} 1"),
        _ => format!("HGETALL {hash}"),
    })
}

/// What concerns more than keys, or goes on for long; alone.
pub fn other(random: &mut Random) -> CommandWords {
    let key = |kind: &str, random: &mut Random| format!("{kind}:{}", below(random, 3));
    let (list, zset) = (key("list", random), key("zset", random));
    let number = below(random, 100);
    words(&match below(random, 22) {
        0 => "FLUSHALL".into(),
        1 => "FLUSHDB ASYNC".into(),
        2 | 3 => "SWAPDB 0 1".into(),
        4 | 5 => format!("SELECT {}", number % DATABASES),
        6 => format!("WATCH {list}"),
        7 => "UNWATCH".into(),
        8 => format!("CLIENT PAUSE {} WRITE", 1 + number * 5),
        9 => format!("CLIENT PAUSE {} ALL", 1 + number),
        10 | 11 => "CLIENT UNPAUSE".into(),
        12 => format!("BLPOP {list} 0"),
        13 => format!("BLMOVE {list} list:0 LEFT RIGHT 0"),
        14 => format!("BZPOPMIN {zset} 0"),
        15 => "SUNIONSTORE set:0 large:0 large:1".into(),
        16 => "SMEMBERS large:0".into(),
        17 => "COPY large:0 large:2 REPLACE".into(),
        18 => "DEL large:2".into(),
        19 => format!("MOVE string:{} 1", number % 3),
        20 => "KEYS *".into(),
        _ => format!("GEOADD geo:0 {number} 10 {number}"),
    })
}
