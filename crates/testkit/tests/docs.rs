//! What the pages in `docs` show of conversations with the server is what it says. What they show
//! of shells is run by the tests of the programs.

use std::time::{Duration, Instant};

use bobbin_testkit::transcript::split_words;
use bobbin_testkit::{Connection, Reply, Server, pages};

/// Blocks of text with commands behind a prompt, each on a server of its own.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn conversations_go_as_they_are_shown() {
    let mut count = 0;
    for page in pages::with_blocks("text") {
        let mut conversations = pages::blocks(&format!("docs/{page}"), "text");
        conversations.retain(|block| block.text.starts_with("> "));
        conversations.iter().for_each(|conversation| hold(&page, &conversation.text));
        count += conversations.len();
    }
    assert!(count > 0, "the pages show conversations");
}

/// A command's replies are the lines behind it. `(another client)` behind a command: that is the
/// other's, and it is not waited for; `(the other client)`: what it hears follows.
fn hold(page: &str, conversation: &str) {
    let server = Server::bobbin(&["--io-threads", "2"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    for step in conversation.split("\n> ") {
        let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
        let command = command.trim_start_matches("> ");
        if let Some(command) = command.strip_suffix("(another client)") {
            let words = split_words(command.trim_end()).expect("words");
            other.send(&words).expect("it is sent");
            continue;
        }
        let (own, others) = shown.split_once("(the other client)").unwrap_or((shown, ""));
        let words = split_words(command).expect("words");
        expect(page, command, own, || client.call(&words).ok());
        if !others.is_empty() {
            expect(page, "the other client", others, || receive(&mut other));
        }
    }
}

fn receive(client: &mut Connection) -> Option<Reply> {
    client.receive().ok()
}

/// Asks until the reply is what is shown, which takes its time where another client is at work; or
/// the connection's end, where nothing is shown.
fn expect(page: &str, command: &str, shown: &str, mut ask: impl FnMut() -> Option<Reply>) {
    // Long lines are broken.
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let heard = ask().map_or_else(String::new, |reply| show(&reply));
        if heard == shown {
            return;
        }
        assert!(Instant::now() < deadline, "{page}: {command}: {heard}, but it shows {shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As a shell shows it.
fn show(reply: &Reply) -> String {
    match reply {
        Reply::Line { kind: b'-', text } => format!("(error) {}", String::from_utf8_lossy(text)),
        Reply::Line { kind: b':', text } => format!("(integer) {}", String::from_utf8_lossy(text)),
        Reply::Bulk { bytes, .. } => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        Reply::Null { .. } => "(nil)".to_owned(),
        other => other.text(),
    }
}
