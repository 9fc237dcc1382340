//! No command touches a key that its plan does not name, whatever its arguments.

mod grammar;

use grammar::{Choices, GrammarRow, KeyNames, WAYS, Walls, rows};

/// The same bytes for the same seed.
fn bytes(seed: u64) -> Vec<u8> {
    let mut random =
        bobbin_server::base::random::Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..200).map(|_| random.next_u32() as u8).collect()
}

/// The name of a key that is open in the place of every word of commands about keys that are
/// closed, and of the words that options begin with.
#[test]
fn a_user_gets_nothing_beyond_its_keys() {
    let (mut walls, rows) = (Walls::new(), rows());
    let rounds: u64 = std::env::var("BOBBIN_ROUNDS").map_or(3, |text| text.parse().unwrap());
    for (number, row) in rows.iter().enumerate() {
        for round in 0..rounds {
            let bytes = bytes(number as u64 * 1000 + round + 1);
            let mut choices = Choices::new(&bytes);
            let keys = if round % 3 == 2 { KeyNames::Both } else { KeyNames::Closed };
            let command = row.command(&mut choices, keys);
            let way = WAYS[round as usize % 3];
            for at in 1..command.len() {
                for word in [&b"open:string"[..], b"open:stream", b"STREAMS", b"STORE", b"KEYS"] {
                    let mut command = command.clone();
                    command[at] = word.to_vec();
                    walls.send(row, &command, way);
                    command.insert(at, word.to_vec());
                    walls.send(row, &command, way);
                }
            }
        }
    }
}

/// Else the test above would show nothing.
#[test]
fn most_commands_about_open_keys_succeed() {
    let (mut walls, rows) = (Walls::new(), rows());
    let succeeds = |walls: &mut Walls, row: &GrammarRow, number: usize| {
        (0..2000).any(|round| {
            let bytes = bytes((number * 1000 + round + 1) as u64);
            let command = row.command(&mut Choices::new(&bytes), KeyNames::Open);
            walls.send(row, &command, WAYS[round % 2])
        })
    };
    let failing: Vec<&str> = rows
        .iter()
        .enumerate()
        .filter(|(number, row)| row.has_keys && !succeeds(&mut walls, row, *number))
        .map(|(_, row)| &*row.name)
        .collect();
    assert_eq!(failing, NEED_MORE);
}

/// Commands that need a script or function which is there, or a value of a form that none of these
/// has.
const NEED_MORE: [&str; 5] = ["fcall", "fcall_ro", "pfdebug", "evalsha", "evalsha_ro"];
