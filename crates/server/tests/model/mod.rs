//! Sequences of commands from any bytes, run on a worker without sockets and on a model of plain
//! maps; every reply must be the model's. Shared by `tests/commands.rs` and the fuzz target
//! `commands`.

mod keys;
mod sequence;

use bobbin_server::config::{Config, OptionId};
use bobbin_server::embedded::{Embedded, EmbeddedSession};

use self::keys::DatabaseModel;
use self::sequence::{ChoiceBytes, ModelStep};

/// An executor to run sequences on, one after the other.
pub struct ModelBench {
    embedded: Embedded,
    now_ms: i64,
}

impl ModelBench {
    pub fn new() -> Self {
        let config = Config::new();
        config.set_internally(OptionId::io_driver, "epoll").expect("it is an option");
        Self {
            embedded: Embedded::new(config, 1).expect("a server can be made"),
            now_ms: 1_000_000,
        }
    }

    /// Runs the sequence that the bytes stand for; panics where a reply is not the model's.
    pub fn run(&mut self, bytes: &[u8]) {
        let mut bytes = ChoiceBytes::new(bytes);
        let mut model = DatabaseModel::new(self.now_ms);
        let mut sessions: Vec<_> = (0..SESSIONS).map(|_| self.embedded.connect()).collect();
        let mut history = String::new();
        self.embedded.set_time(self.now_ms);
        for _ in 0..STEPS_MAX {
            let Some(step) = sequence::step(&mut bytes, SESSIONS, self.now_ms) else { break };
            match step {
                ModelStep::Wait { ms } => {
                    history.push_str(&format!("(wait {ms} ms)\n"));
                    self.now_ms += ms;
                    self.embedded.set_time(self.now_ms);
                    model.now_ms = self.now_ms;
                }
                ModelStep::Expire => {
                    history.push_str("(expire)\n");
                    self.embedded.expire();
                }
                ModelStep::Send { session, commands } => {
                    let (mut sent, mut expected) = (Vec::new(), Vec::new());
                    for command in commands {
                        history.push_str(&shown(session, &command));
                        encode(&command, &mut sent);
                        model.execute(session, command, &mut expected);
                    }
                    let replies = self.embedded.feed(&mut sessions[session], &sent);
                    check(&history, replies, &expected);
                }
            }
        }
        self.check_all(&mut model, sessions, history);
    }

    /// Compares all that is left, and leaves nothing.
    fn check_all(
        &mut self,
        model: &mut DatabaseModel,
        sessions: Vec<EmbeddedSession>,
        mut history: String,
    ) {
        sessions.into_iter().for_each(|session| self.embedded.disconnect(session));
        // By now what has expired is gone, and so it is not counted either.
        self.now_ms += LAG_MS;
        self.embedded.set_time(self.now_ms);
        model.now_ms = self.now_ms;
        self.embedded.expire();
        let mut session = self.embedded.connect();
        history.push_str("(at the end)\n");
        for command in model.questions() {
            history.push_str(&shown(0, &command));
            let (mut sent, mut expected) = (Vec::new(), Vec::new());
            encode(&command, &mut sent);
            model.answer(&command, &mut expected);
            check(&history, self.embedded.feed(&mut session, &sent), &expected);
        }
        self.embedded.disconnect(session);
    }
}

fn check(history: &str, replies: &[u8], expected: &[u8]) {
    assert!(
        replies == expected,
        "{history}the model says {}\nthe server says {}",
        expected.escape_ascii(),
        replies.escape_ascii()
    );
}

fn encode(command: &[Vec<u8>], output: &mut Vec<u8>) {
    output.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for word in command {
        output.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        output.extend_from_slice(word);
        output.extend_from_slice(b"\r\n");
    }
}

fn shown(session: usize, command: &[Vec<u8>]) -> String {
    let words = command.iter().map(|word| match word.len() {
        0..=60 => format!("\"{}\"", word.escape_ascii()),
        len => format!("\"{}...\"({len} bytes)", word[..20].escape_ascii()),
    });
    format!("{session}> {}\n", words.collect::<Vec<_>>().join(" "))
}

const SESSIONS: usize = 2;
const STEPS_MAX: usize = 200;
/// What has expired is found so much later at most.
const LAG_MS: i64 = 1000;
