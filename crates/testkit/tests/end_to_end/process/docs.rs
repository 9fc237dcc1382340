//! What the pages in `docs` show of conversations with the server is what it says. What they show
//! of shells is run by the tests of the programs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bobbin_testkit::transcript::split_words;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, pages, peers};

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

/// Defaults of options are what a server says: those in tables with a column of that name, those in
/// parentheses behind an option's name, and what is called the default.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn defaults_are_as_they_are_told() {
    let server = TestServer::bobbin(&[]);
    let options = server.connect().call(&["CONFIG", "GET", "*"]).expect("a reply");
    let options: BTreeMap<String, String> =
        options.items().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect();
    let mut told = Vec::new();
    for entry in std::fs::read_dir(peers::repository().join("docs")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "md") {
            let page = std::fs::read_to_string(&path).expect("a page");
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let found = defaults_in_tables(&page).into_iter().chain(defaults_in_prose(&page));
            told.extend(found.map(|(option, value)| (name.clone(), option, value)));
        }
    }
    told.retain(|(_, option, _)| options.contains_key(option));
    let count = |page: &str| told.iter().filter(|(name, ..)| name == page).count();
    for (page, at_least) in [("high-availability.md", 10), ("security.md", 8), ("operations.md", 5)]
    {
        assert!(count(page) >= at_least, "{page}: {told:?}");
    }
    let is_wrong = |(_, option, value): &&(String, String, String)| {
        // What every test sets.
        !["save", "port", "bind", "dir"].contains(&option.as_str())
            && normal(&options[option]) != normal(value)
    };
    let wrong: Vec<_> = told.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// What keys take is what docs/operations.md tells for sizing. It tells of resident bytes: most of
/// them are in use.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn sizes_are_as_they_are_told() {
    let page = peers::repository().join("docs/operations.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let value = "v".repeat(32);
    let fields: String = (0..10).map(|field| format!(" field{field} value{field}")).collect();
    let commands: [(&str, &dyn Fn(usize) -> String); 4] = [
        ("a key of 16 bytes with a value of 32", &|at| format!("SET key:{at:012} {value}")),
        ("the same with a time to live", &|at| format!("SET key:{at:012} {value} EX 9999")),
        ("a hash of ten fields", &|at| format!("HSET key:{at:012}{fields}")),
        ("a member of a large sorted set", &|at| format!("ZADD set {} member:{at:09}", at * 7919)),
    ];
    for (what, command) in commands {
        let server = TestServer::bobbin(&["--io-threads", "2"]);
        let mut client = server.connect();
        let before = used_memory(&server);
        for start in (0..KEYS).step_by(BATCH) {
            let batch: String = (start..start + BATCH).map(|at| command(at) + "\r\n").collect();
            client.send_raw(batch.as_bytes()).expect("sent");
            for _ in 0..BATCH {
                assert!(!client.receive().expect("a reply").is_error(), "{what}");
            }
        }
        assert_size(&page, what, (used_memory(&server) - before) / KEYS as f64);
    }
}

fn used_memory(server: &TestServer) -> f64 {
    server.info("used_memory").parse().expect("a number")
}

/// The second column of the row has the size, or its bounds.
fn assert_size(page: &str, what: &str, used: f64) {
    let row = page.lines().find(|line| line.starts_with(&format!("| {what} |")));
    let told = row.and_then(|row| row.split('|').nth(2)).expect("the page has a row");
    let numbers = told.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    let most = numbers.fold(0.0, f64::max);
    assert!((0.75 * most..=most).contains(&used), "{what}: {used} bytes in use, told are {told}");
}

const KEYS: usize = 100_000;
const BATCH: usize = 1000;

/// Options and defaults by the rows of tables that have columns for both. A row may have several.
fn defaults_in_tables(page: &str) -> Vec<(String, String)> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut found = Vec::new();
    let mut column = None;
    for line in page.lines() {
        if !line.starts_with('|') {
            column = None;
            continue;
        }
        let row = cells(line);
        if row[0] == "option" {
            column = row.iter().position(|title| title == "default");
        } else if let Some(default) = column.and_then(|column| row.get(column)) {
            let names = row[0].split(", ").filter_map(|name| name.split('`').nth(1));
            found.extend(names.map(str::to_owned).zip(default.split(", ").map(unquoted)));
        }
    }
    // What is told in words is no value.
    found.retain(|(_, value)| !value.contains(' '));
    found
}

/// Options with their defaults as `name` (a number), and as `name value`, the default.
fn defaults_in_prose(page: &str) -> Vec<(String, String)> {
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    let mut rest = &*page;
    while let Some((_, after)) = rest.split_once('`') {
        let Some((code, after)) = after.split_once('`') else { break };
        rest = after;
        // Others are in seconds, or say more.
        let inside = after.strip_prefix(" (").and_then(|open| open.split_once(')'));
        let value = inside.map_or(String::new(), |(inside, _)| normal(&inside.replace(' ', "")));
        if value.parse::<u64>().is_ok() {
            found.push((code.to_owned(), value));
        }
        if let Some((option, value)) = code.split_once(' ')
            && (after.starts_with(", the default") || after.starts_with(" (the default"))
        {
            found.push((option.to_owned(), unquoted(value)));
        }
    }
    found
}

fn unquoted(value: &str) -> String {
    value.trim_matches('`').to_owned()
}

/// A value with its unit of bytes counted out.
fn normal(value: &str) -> String {
    let value = value.to_lowercase();
    for (unit, bytes) in [("kb", 1 << 10), ("mb", 1 << 20), ("mib", 1 << 20), ("gb", 1 << 30)] {
        if let Some(number) = value.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok())
        {
            return (number * bytes).to_string();
        }
    }
    value
}

/// A command's replies are the lines behind it. `(another client)` behind a command: that is the
/// other's, and it is not waited for; `(the other client)`: what it hears follows.
fn hold(page: &str, conversation: &str) {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
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

fn receive(client: &mut TestConnection) -> Option<ReplyFrame> {
    client.receive().ok()
}

/// Asks until the reply is what is shown, which takes its time where another client is at work; or
/// the connection's end, where nothing is shown.
fn expect(page: &str, command: &str, shown: &str, mut ask: impl FnMut() -> Option<ReplyFrame>) {
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
fn show(reply: &ReplyFrame) -> String {
    match reply {
        ReplyFrame::Line { kind: b'-', text } => {
            format!("(error) {}", String::from_utf8_lossy(text))
        }
        ReplyFrame::Line { kind: b':', text } => {
            format!("(integer) {}", String::from_utf8_lossy(text))
        }
        ReplyFrame::Bulk { bytes, .. } => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        ReplyFrame::Null { .. } => "(nil)".to_owned(),
        other => other.text(),
    }
}
