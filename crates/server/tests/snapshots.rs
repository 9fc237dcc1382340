//! Damaged RDB files: `--check-rdb` and loading must agree on each, as both should read it with the
//! same code.
//!
//! `BOBBIN_FILES=100000` tries that many files, with seeds from `BOBBIN_SEED` on (default 0).

#[allow(dead_code, reason = "values are of use here, what restores them is not")]
mod payloads;

use bobbin_dump::crc64;
use bobbin_server::config::{Config, OptionId};
use bobbin_server::persistence::LoadRules;
use bobbin_server::process::check_rdb::examine;
use payloads::PayloadBench;

/// Files of a run of the tests.
const FILES: u64 = 1_000;
/// Changes of a file, at most.
const CHANGES_MAX: u64 = 3;
/// Longer values are left out: most changes of a file would be of their bytes, which mean nothing.
const VALUE_MAX: usize = 300;

#[test]
fn checking_and_loading_agree() {
    let values: Vec<Vec<u8>> = PayloadBench::new().seeds().to_vec();
    let values: Vec<_> = values.into_iter().filter(|value| value.len() <= VALUE_MAX).collect();
    let first = number("BOBBIN_SEED").unwrap_or(0);
    let count = number("BOBBIN_FILES").unwrap_or(FILES);
    let mut sound = 0;
    for seed in first..first + count {
        let bytes = file(&mut Random(seed), &values);
        let checked = examine(&bytes[..], false, |_, _| {}).map_err(|(_, error)| error);
        let loaded = load(&bytes);
        let (checked, loaded) = match (checked, loaded) {
            (Ok(checked), Ok(loaded)) => (checked, loaded),
            (Err(_), Err(_)) => continue,
            outcomes => panic!("BOBBIN_SEED={seed}: {outcomes:?}: {}", bytes.escape_ascii()),
        };
        assert_eq!(checked, loaded, "BOBBIN_SEED={seed}: {}", bytes.escape_ascii());
        sound += 1;
    }
    // Both happen often.
    assert!((count / 10..=count * 9 / 10).contains(&sound), "{sound} of {count} are sound");
}

/// As a server does at its start.
fn load(bytes: &[u8]) -> Result<bobbin_server::persistence::Loaded, String> {
    let config = Config::new();
    config.set_internally(OptionId::databases, &i32::MAX.to_string())?;
    bobbin_server::persistence::load::load_beside(
        bobbin_server::process::create(config, &[])?,
        bytes,
        LoadRules::default(),
    )
}

/// A file of some keys and what else there may be, with some changes.
fn file(random: &mut Random, values: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"REDIS0011\xfa\x09redis-ver\x057.2.0".to_vec();
    for key in 0..1 + random.below(4) {
        match random.below(10) {
            0 => bytes.extend(b"\xfe\x01"),
            1 => bytes.extend(b"\xfb\x02\x01"),
            2 => bytes.extend(b"\xfa\x05ctime\x041000"),
            3 => bytes.extend(LIBRARY),
            4 => bytes.extend(b"\xf7\x81\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\x02\x05\x00"),
            _ => {}
        }
        match random.below(6) {
            0 => bytes.extend(b"\xfc\xff\xff\xff\xff\xff\x00\x00\x00"),
            1 => bytes.extend(b"\xfd\x01\x00\x00\x00"),
            2 => bytes.extend(b"\xf8\x07"),
            3 => bytes.extend(b"\xf9\x07"),
            _ => {}
        }
        let value = &values[random.below(values.len() as u64) as usize];
        bytes.push(value[0]);
        bytes.extend([b'\x01', b'a' + key as u8]);
        bytes.extend(&value[1..]);
    }
    bytes.push(b'\xff');
    for _ in 0..random.below(CHANGES_MAX + 1) {
        change(&mut bytes, random);
    }
    // Zeros: nobody has added it up.
    let sum = if random.below(4) == 0 { crc64(0, &bytes) } else { 0 };
    bytes.extend(sum.to_le_bytes());
    if random.below(20) == 0 {
        change(&mut bytes, random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len() as u64) as usize;
    let end = bytes.len().min(at + random.below(16) as usize);
    match random.below(8) {
        0 => bytes[at] = random.below(256) as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = bytes[at].wrapping_add(1),
        3 => bytes[at] = 0xf4 + random.below(12) as u8,
        4 => bytes.insert(at, random.below(256) as u8),
        5 => drop(bytes.drain(at..end)),
        6 => {
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        _ if random.below(4) == 0 => bytes.truncate(at),
        _ => bytes[at] = random.below(30) as u8,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

const LIBRARY: &[u8] = b"\xf5\x40\x51#!lua name=l\nredis.register_function('f', function() return 1 end) -- a comment.\n";
