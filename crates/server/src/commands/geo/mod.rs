//! Geo: positions in sorted sets. The arithmetic is `bobbin_store::geo`.

mod query;
mod search;

use bobbin_resp::{Reply, parse_f64};
use bobbin_store::geo::GeoPosition;
use bobbin_store::value::{SortedSet, SortedSetLimits};

use super::sorted_set::each_score;
use crate::engine::command::{Call, Categories, Classes, Command, Failure, Family, Flags, Outcome};
use crate::engine::row::keys::{KeySpec, KeyUse};

fn geoadd(call: &mut Call<'_>) -> Outcome {
    let (mut new_only, mut old_only, mut count_changes) = (false, false, false);
    let mut first = 2;
    while first < call.args.len() {
        let option = [("nx", &mut new_only), ("xx", &mut old_only), ("ch", &mut count_changes)]
            .into_iter()
            .find(|(word, _)| call.args[first].eq_ignore_ascii_case(word.as_bytes()));
        let Some((_, option)) = option else { break };
        *option = true;
        first += 1;
    }
    let places = &call.args[first..];
    if places.is_empty() || !places.len().is_multiple_of(3) || new_only && old_only {
        return Err(Failure::SYNTAX);
    }
    let mut scores = Vec::with_capacity(places.len() / 3);
    for place in places.chunks_exact(3) {
        scores.push(position(place)?.score() as f64);
    }
    let (key, limits, hasher) = (call.key(1)?, limits(call.server), call.data.keyspace().hasher());
    let set = if old_only {
        call.data.write_as::<SortedSet>(key)?
    } else {
        Some(call.data.write_or_create::<SortedSet>(key)?)
    };
    let (mut added, mut changed) = (0, 0);
    if let Some(set) = set {
        let members = places.chunks_exact(3).map(|place| place[2]);
        set.update_all(members, limits, hasher, |index, old_score| {
            let score = scores[index];
            match old_score {
                None if !old_only => added += 1,
                Some(old_score) if !new_only => changed += i64::from(old_score != score),
                _ => return None,
            }
            Some(score)
        });
    }
    if added + changed > 0 {
        call.data.changed_by(key, (added + changed) as usize);
        propagate_scores(call, first, &scores);
        call.data.event(Classes::SORTED_SET, "zadd", key);
    }
    call.reply.integer(if count_changes { added + changed } else { added });
    Ok(())
}

/// Logs GEOADD as a ZADD with the same result. Its places begin at argument `first`.
fn propagate_scores(call: &mut Call<'_>, first: usize, scores: &[f64]) {
    if !call.data.is_logged() {
        return;
    }
    // Scores are integers below 2^52.
    let texts: Vec<String> = scores.iter().map(|&score| (score as u64).to_string()).collect();
    let mut args = vec![&b"ZADD"[..]];
    args.extend(&call.args[1..first]);
    for (text, place) in texts.iter().zip(call.args[first..].chunks_exact(3)) {
        args.extend([text.as_bytes(), place[2]]);
    }
    call.data.propagate(&args);
}

fn geopos(call: &mut Call<'_>) -> Outcome {
    each_score(call, |reply, score| match score.map(GeoPosition::from_score) {
        Some(place) => append_position(reply, place),
        None => reply.null_array(),
    })
}

fn geohash(call: &mut Call<'_>) -> Outcome {
    each_score(call, |reply, score| match score.map(GeoPosition::from_score) {
        Some(place) => reply.bulk(&place.geohash()),
        None => reply.null(),
    })
}

fn geodist(call: &mut Call<'_>) -> Outcome {
    let metres = match call.args.len() {
        4 => 1.0,
        5 => unit(call.args[4])?,
        _ => return Err(Failure::SYNTAX),
    };
    let (key, hasher) = (call.key(1)?, call.data.keyspace().hasher());
    let set = call.data.read_as::<SortedSet>(key)?;
    let place = |at: usize| Some(GeoPosition::from_score(set?.score(call.args[at], hasher)?));
    match (place(2), place(3)) {
        (Some(a), Some(b)) => append_distance(&mut call.reply, a.distance(b) / metres),
        _ => call.reply.null(),
    }
    Ok(())
}

/// Parses two words as a longitude and a latitude.
fn position(words: &[&[u8]]) -> Result<GeoPosition, Failure> {
    let longitude = parse_f64(words[0]).ok_or(Failure::NOT_A_FLOAT)?;
    let latitude = parse_f64(words[1]).ok_or(Failure::NOT_A_FLOAT)?;
    GeoPosition::new(longitude, latitude).ok_or_else(|| {
        let pair = format!("{},{}", fixed(longitude), fixed(latitude));
        Failure::format(format!("ERR invalid longitude,latitude pair {pair}"))
    })
}

/// Formats a number as C's `%f` does.
fn fixed(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    format!("{number:.6}")
}

/// How many metres a unit has.
fn unit(word: &[u8]) -> Result<f64, Failure> {
    let known = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = known.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, metres)| metres).ok_or(UNKNOWN_UNIT)
}

/// Appends a distance with four decimals.
fn append_distance(reply: &mut Reply<'_>, distance: f64) {
    let rounded = (distance * 10_000.0).round_ties_even() as i64;
    let (whole, decimals) = (rounded / 10_000, rounded % 10_000);
    reply.bulk(format!("{whole}.{decimals:04}").as_bytes());
}

/// Appends coordinates with up to seventeen decimals, without trailing zeros.
fn append_position(reply: &mut Reply<'_>, place: GeoPosition) {
    reply.array(2);
    for coordinate in [place.longitude, place.latitude] {
        let text = format!("{coordinate:.17}");
        reply.double_text(text.trim_end_matches('0').trim_end_matches('.').as_bytes());
    }
}

/// The current limits of the packed form.
fn limits(server: &crate::engine::server::Server) -> SortedSetLimits {
    SortedSetLimits {
        packed_entries: server.config.zset_max_listpack_entries() as usize,
        packed_value_len: server.config.zset_max_listpack_value() as usize,
    }
}

const UNKNOWN_UNIT: Failure =
    Failure::new(&"ERR unsupported unit provided. please use M, KM, FT, MI");

const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const STORE: KeyUse = KeyUse::OVERWRITE.with(KeyUse::UPDATE);
const UPDATE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::UPDATE);
const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);

const PER_MEMBER: &str = "O(1) for each member";
const PER_CIRCLE: &str =
    "O(N+log(M)), N: members in the box around the circle, M: members of the set";
const PER_SHAPE: &str =
    "O(N+log(M)), N: members in the cells of the grid around the shape, M: members within it";

const UNITS: (&str, &str) = ("7.0.0", "Units may be written in upper case.");
const RADIUS_HISTORY: &[(&str, &str)] = &[("6.2.0", "`COUNT` takes `ANY`."), UNITS];
const SEARCH_HISTORY: &[(&str, &str)] = &[UNITS, ("9.0.0", "Takes `BYPOLYGON`.")];

const FAMILY: Family = Family::new(Categories::GEO);

pub(super) const COMMANDS: &[Command] = &[
    FAMILY
        .row("geoadd", -5, GROW.with(Flags::BRIEF), geoadd)
        .keys(&[KeySpec::at(1, UPDATE)])
        .doc(
            "geo",
            "3.2.0",
            "O(log(N)) for each member, N: members of the set",
            "Adds members with their positions to a sorted set.",
        )
        .syntax(
            "key [<NX | XX>] @6.2.0 [CH :change @6.2.0] longitude:double latitude:double member \
             [longitude latitude member ...]",
        )
        .history(&[("6.2.0", "`CH`, `NX` and `XX` are new.")]),
    FAMILY
        .row("geopos", -2, Flags::READONLY, geopos)
        .keys(&[KeySpec::at(1, READ)])
        .doc("geo", "3.2.0", PER_MEMBER, "Answers the positions of members.")
        .syntax("key [member [member ...]]"),
    FAMILY
        .row("geohash", -2, Flags::READONLY, geohash)
        .keys(&[KeySpec::at(1, READ)])
        .doc("geo", "3.2.0", PER_MEMBER, "Answers the geohashes of members.")
        .syntax("key [member [member ...]]"),
    FAMILY
        .row("geodist", -4, Flags::READONLY, geodist)
        .keys(&[KeySpec::at(1, READ)])
        .doc("geo", "3.2.0", "O(1)", "Answers how far two members are from each other.")
        .syntax("key member1 member2 [<M | KM | FT | MI>]"),
    FAMILY
        .row("geosearch", -7, Flags::READONLY, search::geosearch)
        .keys(&[KeySpec::at(1, READ)])
        .doc("geo", "6.2.0", PER_SHAPE, "Answers the members within a circle, a box or a polygon.")
        .syntax(
            "key [<FROMMEMBER member | FROMLONLAT longitude:double latitude:double>] :from \
             <<BYRADIUS radius:double <M | KM | FT | MI>> :circle | <BYBOX width:double \
             height:double <M | KM | FT | MI>> :box | <BYPOLYGON num-vertices:int \
             <longitude:double latitude:double> ... :vertices> :polygon @9.0.0> :by [<ASC | DESC>] \
             [COUNT count:int [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        )
        .history(SEARCH_HISTORY),
    FAMILY
        .row("geosearchstore", -8, GROW, search::geosearchstore)
        .keys(&[KeySpec::at(1, STORE), KeySpec::at(2, READ)])
        .doc("geo", "6.2.0", PER_SHAPE, "Stores the members within a circle, a box or a polygon.")
        .syntax(
            "destination:key source:key [<FROMMEMBER member | FROMLONLAT longitude:double \
             latitude:double>] :from <<BYRADIUS radius:double <M | KM | FT | MI>> :circle | <BYBOX \
             width:double height:double <M | KM | FT | MI>> :box | <BYPOLYGON num-vertices:int \
             <longitude:double latitude:double> ... :vertices> :polygon @9.0.0> :by [<ASC | DESC>] \
             [COUNT count:int [ANY]] [STOREDIST]",
        )
        .history(SEARCH_HISTORY),
    FAMILY
        .row("georadius", -6, GROW.with(Flags::MOVABLE_KEYS), search::georadius)
        .keys(&[
            KeySpec::at(1, READ),
            KeySpec::keyword("STORE", 6, STORE.with(KeyUse::VARIABLE)),
            KeySpec::keyword("STOREDIST", 6, STORE.with(KeyUse::VARIABLE)),
        ])
        .keys_by(search::find_keys)
        .doc("geo", "3.2.0", PER_CIRCLE, "Answers or stores the members within a circle.")
        .syntax(
            "key longitude:double latitude:double radius:double <M | KM | FT | MI> [WITHCOORD] \
             [WITHDIST] [WITHHASH] [COUNT count:int [ANY @6.2.0]] [<ASC | DESC>] [<STORE key \
             :storekey | STOREDIST key :storedistkey>]",
        )
        .history(RADIUS_HISTORY),
    FAMILY
        .row("georadius_ro", -6, Flags::READONLY, search::georadius_ro)
        .keys(&[KeySpec::at(1, READ)])
        .doc("geo", "3.2.10", PER_CIRCLE, "Answers the members within a circle.")
        .syntax(
            "key longitude:double latitude:double radius:double <M | KM | FT | MI> [WITHCOORD] \
             [WITHDIST] [WITHHASH] [COUNT count:int [ANY @6.2.0]] [<ASC | DESC>]",
        )
        .history(RADIUS_HISTORY),
    FAMILY
        .row("georadiusbymember", -5, GROW.with(Flags::MOVABLE_KEYS), search::georadiusbymember)
        .keys(&[
            KeySpec::at(1, READ),
            KeySpec::keyword("STORE", 5, STORE.with(KeyUse::VARIABLE)),
            KeySpec::keyword("STOREDIST", 5, STORE.with(KeyUse::VARIABLE)),
        ])
        .keys_by(search::find_keys_by_member)
        .doc(
            "geo",
            "3.2.0",
            PER_CIRCLE,
            "Answers or stores the members within a circle around one.",
        )
        .syntax(
            "key member radius:double <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT \
             count:int [ANY]] [<ASC | DESC>] [<STORE key :storekey | STOREDIST key :storedistkey>]",
        )
        .history(RADIUS_HISTORY),
    FAMILY
        .row("georadiusbymember_ro", -5, Flags::READONLY, search::georadiusbymember_ro)
        .keys(&[KeySpec::at(1, READ)])
        .doc("geo", "3.2.10", PER_CIRCLE, "Answers the members within a circle around one.")
        .syntax(
            "key member radius:double <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT \
             count:int [ANY]] [<ASC | DESC>]",
        )
        .history(RADIUS_HISTORY),
];
