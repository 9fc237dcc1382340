//! Replicas of Valkey and of Bobbin answer the same questions alike; each has a primary of its
//! kind.

use std::time::Duration;

use bobbin_testkit::transcript::split_words;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

const ARGUMENTS: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
/// Longer than the deadlines in the questions.
const DEADLINES: Duration = Duration::from_millis(400);

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replicas_answer_as_valkeys_do() {
    let questions = include_str!("answers.txt");
    let starts: [fn(&[&str]) -> TestServer; 2] = [TestServer::valkey, TestServer::bobbin];
    let [expected, answers] = starts.map(|start| ask(questions, start));
    assert!(expected.len() > 90, "{}", expected.len());
    for (expected, answer) in expected.iter().zip(&answers) {
        assert_eq!(answer, expected);
    }
}

/// Asks a primary and its replica, and returns each question with its answer.
fn ask(questions: &str, start: fn(&[&str]) -> TestServer) -> Vec<(&str, ReplyFrame)> {
    let (primary, replica) = (start(&ARGUMENTS), start(&ARGUMENTS));
    replica.follow(primary.address().port());
    primary.settle(&[&replica]);
    let (mut at_primary, mut at_replica) = (primary.connect(), replica.connect());
    for client in [&mut at_primary, &mut at_replica] {
        assert_eq!(client.say("DEBUG SET-ACTIVE-EXPIRE 0"), ReplyFrame::simple("OK"));
    }
    let mut answers = Vec::new();
    for question in questions.lines().filter(|line| !line.starts_with('#')) {
        match question.split_at(1) {
            ("P", line) => answers.push((question, answer(&mut at_primary, line))),
            ("R", line) => answers.push((question, answer(&mut at_replica, line))),
            ("W", "") => primary.settle(&[&replica]),
            ("S", "") => std::thread::sleep(DEADLINES),
            _ => panic!("{question}"),
        }
    }
    answers
}

fn answer(client: &mut TestConnection, line: &str) -> ReplyFrame {
    let words = split_words(line.trim()).unwrap_or_else(|error| panic!("{line}: {error}"));
    let mut reply = client.call(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
    reply.sort_unordered();
    reply
}
