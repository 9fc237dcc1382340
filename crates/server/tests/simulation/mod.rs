//! See `tests/units.rs`.

pub mod crash;
mod load;
pub mod threads;
pub mod turns;

use bobbin_server::base::random::Random;
use bobbin_server::config::{Config, OptionId};
use bobbin_server::embedded::EmbeddedProcess;

/// A command, in words.
pub type CommandWords = Vec<String>;

/// A number below the limit.
fn below(random: &mut Random, limit: usize) -> usize {
    random.next_u32() as usize % limit
}

fn random(seed: u64) -> Random {
    Random::new(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn process() -> EmbeddedProcess {
    let config = Config::new();
    config.set_internally(OptionId::io_driver, "epoll").expect("it is an option");
    EmbeddedProcess::new(config).expect("a server can be made")
}

fn encode<W: AsRef<[u8]>>(command: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn words(line: &str) -> CommandWords {
    line.split(' ').map(str::to_owned).collect()
}
