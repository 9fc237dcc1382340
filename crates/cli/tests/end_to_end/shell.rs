//! The shell, on a terminal of the test's own.

use std::{
    fs::File,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    process::Child,
    sync::{Arc, Mutex},
    thread,
};

use crate::common::{eventually, eventually_or, program, run_with};
use bobbin_testkit::{Endless, TestServer};
use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

/// A session: what is written goes to the shell's keyboard, what it draws is collected.
pub struct Terminal {
    child: Endless,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    seen: usize,
}

impl Terminal {
    pub fn open(server: &TestServer, arguments: &[&str], history: Option<&str>) -> Self {
        Self::open_at(server.address(), arguments, history, &[])
    }

    pub fn open_at(
        server: SocketAddr,
        arguments: &[&str],
        history: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let terminal =
            || File::from(open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let mut command = program();
        command.args(["-p", &server.port().to_string()]).args(arguments);
        command.env("TERM", "xterm").envs(environment.iter().copied());
        if let Some(history) = history {
            command.env("VALKEYCLI_HISTFILE", history);
        }
        command.stdin(terminal()).stdout(terminal()).stderr(terminal());
        // Ctrl-Z is for the whole group, which must not be the test's.
        command.process_group(0);
        let child: Child = command.spawn().unwrap();
        let controller = File::from(controller);
        let mut output = controller.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let drawn = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The other end closes with an error, which ends this.
            while let Ok(len @ 1..) = output.read(&mut buffer) {
                drawn.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..len]));
            }
        });
        Self { child: Endless(child), keyboard: controller, screen, seen: 0 }
    }

    pub fn keys(&mut self, keys: &str) {
        self.bytes(keys.as_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.keyboard.write_all(bytes).unwrap();
    }

    /// Does what terminals do with a pasted text: they mark it if they were asked to.
    pub fn paste(&mut self, text: &str) {
        let is_marked = {
            let screen = self.screen.lock().unwrap();
            screen.rfind("\x1b[?2004h") > screen.rfind("\x1b[?2004l")
        };
        let text = text.replace('\n', "\r");
        self.keys(&if is_marked { format!("\x1b[200~{text}\x1b[201~\r") } else { text });
    }

    /// Waits for a text behind what was waited for before.
    pub fn sees(&mut self, text: &str) {
        self.sees_one_of(&[text]);
    }

    /// Waits for the first of several texts, behind what was waited for before.
    pub fn sees_one_of(&mut self, texts: &[&str]) {
        let mut found = None;
        let what = || format!("one of {texts:?} on the screen: {:?}", self.rest());
        eventually_or(what, || {
            let rest = self.rest();
            let places = texts.iter().filter_map(|text| Some((rest.find(text)?, text.len())));
            found = places.min();
            found.is_some()
        });
        let (at, len) = found.unwrap();
        self.seen += at + len;
    }

    /// What Ctrl-C does while the shell is not editing.
    fn interrupt(&self) {
        let id = Pid::from_child(&self.child.0);
        kill_process(id, Signal::INT).unwrap();
    }

    /// What Ctrl-C does to the programs that the shell started. (They share no terminal that would
    /// tell them, as it is no session's controlling one.)
    fn end_children(&self) {
        let id = self.child.0.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        for child in children.split_whitespace() {
            let id = Pid::from_raw(child.parse().unwrap()).unwrap();
            kill_process(id, Signal::INT).unwrap();
        }
    }

    /// How many bytes have been drawn.
    pub fn drawn(&self) -> usize {
        self.screen.lock().unwrap().len()
    }

    pub fn rest(&self) -> String {
        self.screen.lock().unwrap()[self.seen..].to_owned()
    }

    pub fn ends(mut self) -> Option<i32> {
        let mut status = None;
        eventually("the shell ends", || {
            status = self.child.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_session() {
    let server = TestServer::bobbin(&[]);
    let address = server.address().to_string();
    let prompt = format!("{address}> ");
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees(&prompt);
    terminal.keys("set key \"a b\"\r");
    terminal.sees("OK\r\n");
    terminal.keys("get key\r");
    terminal.sees("\"a b\"\r\n");
    terminal.keys("select 3\r");
    terminal.sees(&format!("{address}[3]> "));
    terminal.keys("multi\r");
    terminal.sees(&format!("{address}[3](TX)> "));
    terminal.keys("incr n\r");
    terminal.sees("QUEUED\r\n");
    // Help must not be queued.
    terminal.keys("help incr\r");
    terminal.sees("summary:");
    terminal.keys("select 5\r");
    terminal.sees(&format!("{address}[5](TX)> "));
    terminal.keys("discard\r");
    terminal.sees(&format!("{address}[3]> "));
    terminal.keys("2 incr n\r");
    terminal.sees("(integer) 1\r\n(integer) 2\r\n");
    terminal.keys("quit\r");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn hints_completion_and_help() {
    let server = TestServer::bobbin(&[]);
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("getrange ");
    terminal.sees("\x1b[90mkey start end\x1b[0m");
    terminal.keys("k 1 ");
    terminal.sees("\x1b[90mend\x1b[0m");
    terminal.keys("2\r");
    terminal.sees("\"\"\r\n");
    terminal.keys("help getr\t");
    terminal.sees("GETRANGE");
    terminal.keys("\r");
    terminal.sees("summary:");
    for (line, meant) in [("gte a", "GET"), ("config gte maxmemory", "CONFIG GET")] {
        terminal.keys(&format!("{line}\r"));
        terminal.sees("(error) ERR unknown ");
        terminal.sees(&format!("Did you mean {meant}?\r\n"));
    }
    terminal.keys(":set nohints\r");
    terminal.sees("> ");
    let before = terminal.seen;
    terminal.keys("getrange a\r");
    terminal.sees("(error)");
    assert!(!terminal.screen.lock().unwrap()[before..].contains("start end"));
    // The end of the input on an empty line ends the shell.
    terminal.keys("\x15\x04");
    assert_eq!(terminal.ends(), Some(0));
}

/// Tab lists what may follow, with a few words about it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn completion_with_summaries() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    connection.call(&["SELECT", "3"]).unwrap();
    connection.call(&["SET", "visits", "1"]).unwrap();
    connection.call(&["RPUSH", "vis a vis", "1"]).unwrap();
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("getr\t");
    terminal.sees("GETRANGE");
    terminal.keys("\x03config set maxmem\t");
    terminal.sees("maxmemory ");
    terminal.sees("maxmemory-policy");
    terminal.sees("\"noeviction\"");
    terminal.keys("\x03acl cat scr\t\r");
    terminal.sees("1) \"");
    terminal.keys("select 3\r");
    terminal.sees("[3]> ");
    terminal.keys("get vi\t");
    terminal.sees("\"vis a vis\"  list");
    terminal.sees("visits       string");
    terminal.keys("si\t\r");
    terminal.sees("\"1\"\r\n");
    // Passwords are among the options, and are not shown.
    connection.call(&["CONFIG", "SET", "masterauth", "secret"]).unwrap();
    terminal.keys("config get master\t");
    terminal.sees("masterauth");
    terminal.sees("masteruser");
    assert!(!terminal.screen.lock().unwrap().contains("secret"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn ctrl_c_timing_and_watching() {
    let server = TestServer::bobbin(&[]);
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    let mut connection = server.connect();
    terminal.keys("flushall now\x03ping\r");
    terminal.sees("PONG\r\n");
    terminal.keys(":set timing\rping\r");
    terminal.sees("PONG\r\n(");
    terminal.sees(" ms)\r\n");
    terminal.keys(":watch 0.1 incr seen\r");
    terminal.sees("incr seen, every 0.1s");
    terminal.sees("(integer) 3\r\n");
    terminal.interrupt();
    terminal.sees("> ");
    // The same for a command that has no reply.
    terminal.keys(":watch 1 blpop nokey 0\r");
    eventually("the command waits", || {
        let clients = connection.call(&["INFO", "clients"]).unwrap();
        clients.text().contains("blocked_clients:1")
    });
    terminal.interrupt();
    terminal.sees("> ");
    terminal.keys("ping\r");
    terminal.sees("PONG\r\n");
    terminal.keys(":watch 0\r");
    terminal.sees("from 0.1 to 86400");
    terminal.keys(":set notiming\recho end\r");
    terminal.sees("\"end\"\r\n");
    terminal.sees("> ");
    terminal.keys("\x03");
    assert_eq!(terminal.ends(), Some(0));
}

/// Tab opens a menu; typing narrows it, arrow keys move in it, Enter takes what is marked.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_menu_of_completions() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    for key in ["visits", "visitors", "views"] {
        connection.call(&["SET", key, &format!("the {key}")]).unwrap();
    }
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("get vi\t");
    terminal.sees("\x1b[7m> views     string");
    terminal.sees("  visitors  string");
    terminal.sees("  visits    string");
    terminal.keys("\x1b[B");
    terminal.sees("\x1b[7m> visitors");
    terminal.keys("s");
    terminal.sees("\x1b[7m> visitors");
    terminal.keys("\x1b[B\r");
    terminal.sees("get visits");
    terminal.keys("\r");
    terminal.sees("\"the visits\"\r\n");
    // Esc leaves what was typed.
    terminal.keys("get vi\t");
    terminal.sees("\x1b[7m> views");
    terminal.keys("e\x1b");
    terminal.sees("get vie");
    terminal.keys("ws\r");
    terminal.sees("\"the views\"\r\n");
    // Ctrl-C forgets it.
    terminal.keys("get vi\t");
    terminal.sees("\x1b[7m> views");
    terminal.keys("\x03");
    terminal.sees("\x1b[J");
    terminal.keys("echo end\r");
    terminal.sees("\"end\"\r\n");
    // More than there is room for.
    terminal.keys("config set \t");
    terminal.sees("  1 of ");
    terminal.keys("\x1b[A");
    terminal.sees("  100 of 100");
    terminal.keys("\x1b");
    terminal.sees("> config set ");
    terminal.keys("\x03ping\r");
    terminal.sees("PONG\r\n");
}

/// On a low terminal there is a list instead of the menu, and on a dumb one nothing.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn terminals_without_a_menu() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    for key in ["visits", "visitors"] {
        connection.call(&["SET", key, key]).unwrap();
    }
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    let size = Winsize { ws_row: 5, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal.keyboard, size).unwrap();
    terminal.keys("get visi\t");
    terminal.sees("visitors  string");
    terminal.sees("visits    string");
    terminal.keys("s\r");
    terminal.sees("\"visits\"\r\n");
    assert!(!terminal.screen.lock().unwrap().contains("\x1b[7m"));
    let mut terminal = Terminal::open_at(server.address(), &[], None, &[("TERM", "dumb")]);
    terminal.sees("> ");
    terminal.keys("get visits\r");
    terminal.sees("\"visits\"\r\n");
    assert!(!terminal.screen.lock().unwrap().contains('\x1b'));
}

/// Settings of `~/.valkeyclirc` hold from the beginning.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn settings_to_begin_with() {
    let server = TestServer::bobbin(&[]);
    let file = server.folder().join("settings");
    std::fs::write(&file, "# mine\n:set timing\n\n:set pretty\n").unwrap();
    let environment = [("VALKEYCLI_RCFILE", file.to_str().unwrap())];
    let mut terminal = Terminal::open_at(server.address(), &[], None, &environment);
    terminal.sees("> ");
    terminal.keys("set document \"[1]\"\r");
    terminal.sees("OK\r\n(");
    terminal.sees(" ms)\r\n");
    terminal.keys("get document\r");
    terminal.sees("(JSON, 3 bytes)");
}

/// One Tab lists a hundred keys, and looks at 20,000 at most.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn keys_of_a_large_database_are_completed_in_part() {
    let server = TestServer::bobbin(&["--enable-debug-command", "yes"]);
    let mut connection = server.connect();
    connection.call(&["DEBUG", "POPULATE", "40000", "user"]).unwrap();
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("get user:\t");
    terminal.sees("  1 of 100");
    terminal.keys("\x03");
    connection.say("CONFIG RESETSTAT");
    terminal.keys("get none:\t\x15ping\r");
    terminal.sees("PONG\r\n");
    let scans = server.info("cmdstat_scan");
    let calls = scans.split([',', '=']).nth(1).and_then(|calls| calls.parse::<u32>().ok());
    // On a slow machine a second is over before.
    assert!(calls.is_some_and(|calls| (1..=20).contains(&calls)), "{scans}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn pretty_values() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    connection.call(&["SET", "document", "{\"name\":\"Ada\"}"]).unwrap();
    connection.call(&["SET", "text", "{no"]).unwrap();
    for (name, value) in [("packed", &b"\x81\xa1a\x01"[..]), ("plain", b"\x01")] {
        connection.call(&[&b"HSET"[..], b"h", name.as_bytes(), value]).unwrap();
    }
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("get document\r");
    terminal.sees("\"{\\\"name\\\":\\\"Ada\\\"}\"\r\n");
    terminal.keys(":set pretty\rget document\r");
    terminal.sees("\x1b[90m(JSON, 14 bytes)\x1b[0m\r\n{\r\n  \x1b[34m\"name\"\x1b[0m: ");
    terminal.sees("\x1b[32m\"Ada\"\x1b[0m\r\n}\r\n");
    terminal.keys("get text\r");
    terminal.sees("\"{no\"\r\n");
    terminal.keys("hgetall h\r");
    terminal.sees("1) \"packed\"\r\n2) \x1b[90m(MessagePack, 4 bytes)\x1b[0m\r\n   {\r\n     ");
    terminal.sees("   }\r\n3) \"plain\"\r\n4) \"\\x01\"\r\n");
    terminal.keys(":set nopretty\rget document\r");
    terminal.sees("\"{\\\"name\\\"");
    let environment = [("NO_COLOR", "1")];
    let mut terminal = Terminal::open_at(server.address(), &[], None, &environment);
    terminal.sees("> ");
    terminal.keys(":set pretty\rget document\r");
    terminal.sees("(JSON, 14 bytes)\r\n{\r\n  \"name\": \"Ada\"\r\n}\r\n");
    // What is no terminal gets the bytes, whatever is set.
    for arguments in [&[][..], &["--no-raw"]] {
        let input = b":set pretty\nget document\n";
        let ran = run_with(&server, arguments, input, &[("FAKETTY", "1")]);
        assert!(ran.ok().ends_with("Ada\\\"}\"\n"));
    }
}

/// Long replies go to the pager, short ones do not.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_pager_for_long_replies() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    for member in 0..100 {
        connection.call(&["RPUSH", "long", &format!("member {member}")]).unwrap();
    }
    let pager = [("PAGER", "sed 's/^ *1) /paged /'")];
    let mut terminal = Terminal::open_at(server.address(), &[], None, &pager);
    terminal.sees("> ");
    terminal.keys("lrange long 0 -1\r");
    terminal.sees("  1) \"member 0\"\r\n");
    terminal.sees("100) \"member 99\"\r\n");
    terminal.keys(":set pager\rlrange long 0 -1\r");
    terminal.sees("paged \"member 0\"\r\n");
    terminal.sees("100) \"member 99\"\r\n");
    terminal.keys("lrange long 0 3\r");
    terminal.sees("1) \"member 0\"\r\n2)");
    terminal.keys("2 lrange long 0 -1\r");
    terminal.sees("  1) \"member 0\"\r\n");
    terminal.keys(":set nopager\rlrange long 0 -1\r");
    terminal.sees("  1) \"member 0\"\r\n");
    // `less` is told how to show it, unless the user has said that.
    let set_otherwise = std::env::var("LESS").unwrap_or_else(|_| "FRX".to_owned());
    for (own, told) in [(None, &*set_otherwise), (Some("S"), "S")] {
        let pager = ("PAGER", "cat >/dev/null; echo less: $LESS");
        let environment = [Some(pager), own.map(|own| ("LESS", own))];
        let environment: Vec<_> = environment.into_iter().flatten().collect();
        let mut terminal = Terminal::open_at(server.address(), &[], None, &environment);
        terminal.sees("> ");
        terminal.keys(":set pager\rlrange long 0 -1\r");
        terminal.sees(&format!("less: {told}\r\n"));
    }
    for none in ["", "cat", "no-such-pager"] {
        let environment = [("PAGER", none)];
        let mut terminal = Terminal::open_at(server.address(), &[], None, &environment);
        terminal.sees("> ");
        terminal.keys(":set pager\rlrange long 0 -1\r");
        terminal.sees("  1) \"member 0\"\r\n");
        terminal.sees("100) \"member 99\"\r\n");
        terminal.keys("ping\r");
        terminal.sees("PONG\r\n");
    }
    // A pager that leaves early, or is ended by Ctrl-C, ends nothing else.
    let early = [("PAGER", "head -1; echo waits; exec sleep 600")];
    let mut terminal = Terminal::open_at(server.address(), &[], None, &early);
    terminal.sees("> ");
    terminal.keys(":set pager\rlrange long 0 -1\r");
    terminal.sees("waits\r\n");
    terminal.interrupt();
    terminal.end_children();
    terminal.sees("> ");
    terminal.keys("ping\r");
    terminal.sees("PONG\r\n");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn messages_and_ctrl_c() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("subscribe news\r");
    terminal.sees("1) \"subscribe\"\r\n2) \"news\"\r\n3) (integer) 1\r\n");
    terminal.sees("Reading messages... (press Ctrl-C to quit or any key to type command)\r");
    connection.call(&["PUBLISH", "news", "hello"]).unwrap();
    terminal.sees("1) \"message\"\r\n2) \"news\"\r\n3) \"hello\"\r\n");
    terminal.keys("u");
    terminal.sees("(subscribed mode)> ");
    terminal.keys("nsubscribe other\r");
    terminal.sees("1) \"unsubscribe\"");
    terminal.sees("Reading messages");
    terminal.keys("x\x15reset\r");
    terminal.sees("RESET\r\n");
    terminal.keys("monitor\r");
    terminal.sees("OK\r\n");
    connection.call(&["SET", "seen", "1"]).unwrap();
    terminal.sees("\"SET\" \"seen\" \"1\"");
    terminal.interrupt();
    terminal.sees("> ");
    terminal.keys("ping\r");
    terminal.sees("PONG\r\n");
}

/// With the last subscription ends what is different for subscribers.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_end_of_the_last_subscription() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    connection.call(&["RPUSH", "list", "message", "a", "b"]).unwrap();
    let lines: [(&[u8], &str); 2] = [
        (b"subscribe x\nunsubscribe\nlrange list 0 -1\nget a\n", "message\na\nb\n\n"),
        // The second channel's end comes when the command is done already.
        (b"subscribe x y\nunsubscribe\nget a\necho behind\n", "\nbehind\n"),
    ];
    for (input, end) in lines {
        for protocol in ["-2", "-3"] {
            let output = run_with(&server, &[protocol], input, &[]).ok();
            assert!(output.ends_with(end), "{protocol}: {output}");
        }
    }
    for protocol in ["-2", "-3"] {
        let mut terminal = Terminal::open(&server, &[protocol], None);
        terminal.sees("> ");
        terminal.keys("subscribe news other\r");
        terminal.sees("Reading messages");
        terminal.keys("u");
        terminal.sees("(subscribed mode)> ");
        terminal.keys("nsubscribe\r");
        terminal.sees("2) \"other\"\r\n3) (integer) 0\r\n");
        terminal.keys("lrange list 0 -1\r");
        terminal.sees("1) \"message\"");
        terminal.keys("echo behind\r");
        terminal.sees("\r\n\"behind\"\r\n");
        let screen = terminal.screen.lock().unwrap();
        let since = &screen[screen.rfind("1) \"message\"").unwrap()..];
        assert!(!since.contains("Reading messages"), "{since}");
        assert!(!since.contains("(subscribed mode)"), "{since}");
    }
}

/// They are there before the first of them is executed.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn lines_that_are_typed_ahead() {
    let server = TestServer::bobbin(&[]);
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("subscribe news\rping one\rping two\r");
    terminal.sees("1) \"subscribe\"");
    terminal.sees("2) \"one\"");
    terminal.sees("2) \"two\"");
    terminal.sees("Reading messages...");
    // Many lines, as a terminal sends them that does not mark what is pasted.
    terminal.keys("reset\r");
    terminal.sees("RESET");
    let echoes: String = (0..100).map(|line| format!("echo line{line}\r")).collect();
    terminal.keys(&echoes);
    for line in 0..100 {
        terminal.sees(&format!("\"line{line}\"\r\n"));
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_lost_server_comes_back() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("client no-evict on\r");
    terminal.sees("OK\r\n");
    connection.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    terminal.keys("ping\r");
    // The command may come before the server's thread closes, or when it has.
    terminal.sees_one_of(&[CLOSED, RESET]);
    terminal.sees("not connected> ");
    terminal.keys("ping\r");
    terminal.sees("PONG\r\n");
}

/// The system tells a close that left something unread from one that did not, and so do we.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn how_a_connection_was_lost_is_said() {
    let (listener, mut terminal, stream) = shell_of_a_stranger();
    stream.shutdown(Shutdown::Write).unwrap();
    terminal.keys("ping\r");
    terminal.sees(CLOSED);
    terminal.sees("not connected> ");
    terminal.keys("ping\r");
    let (stream, _) = listener.accept().unwrap();
    stream.peek(&mut [0]).unwrap();
    drop(stream);
    terminal.sees(RESET);
    terminal.sees("not connected> ");
}

/// A subscriber's keys are not echoed. They are again when the conversation breaks off.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_terminal_is_as_before_when_messages_are_none() {
    for garbage in ["?\r\n", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n?\r\n"] {
        let (_listener, mut terminal, mut stream) = shell_of_a_stranger();
        terminal.keys("subscribe c\r");
        stream.peek(&mut [0]).unwrap();
        stream.write_all(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").unwrap();
        terminal.sees("Reading messages...");
        stream.write_all(garbage.as_bytes()).unwrap();
        terminal.sees("Error: ");
        terminal.sees("not connected> ");
        terminal.keys("exit\r");
        let keyboard = terminal.keyboard.try_clone().unwrap();
        assert_eq!(terminal.ends(), Some(0));
        let modes = tcgetattr(&keyboard).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
    }
}

/// Ctrl-Z has the shell wait. Its terminal is another program's then, and the shell's behind that.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn ctrl_z() {
    let server = TestServer::bobbin(&[]);
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("echo b\x1a");
    let id = Pid::from_child(&terminal.child.0);
    eventually("the shell stands still", || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        status.contains("State:\tT")
    });
    let modes = tcgetattr(&terminal.keyboard).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
    kill_process(id, Signal::CONT).unwrap();
    eventually("the shell takes keys", || {
        !tcgetattr(&terminal.keyboard).unwrap().local_modes.contains(LocalModes::ICANON)
    });
    terminal.keys("ehind\r");
    terminal.sees("\"behind\"\r\n");
}

/// A shell whose server is the test: what listens, the shell, and its first connection.
fn shell_of_a_stranger() -> (TcpListener, Terminal, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut terminal = Terminal::open_at(listener.local_addr().unwrap(), &[], None, &[]);
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; b"*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n".len()]).unwrap();
    stream.write_all(b"-ERR no\r\n").unwrap();
    terminal.sees("> ");
    (listener, terminal, stream)
}

const CLOSED: &str = "Error: Server closed the connection\r\n";
const RESET: &str = "Error: Connection reset by peer\r\n";

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn passwords_stay_out_of_the_history() {
    let server = TestServer::bobbin(&["--requirepass", "secret"]);
    let file = server.folder().join("history");
    let name = file.to_str().unwrap();
    let mut terminal = Terminal::open(&server, &[], Some(name));
    terminal.sees("> ");
    terminal.keys("auth secret\r");
    terminal.sees("OK\r\n");
    terminal.keys("auth \"secret\r");
    terminal.sees("Invalid argument(s)");
    terminal.keys(":watch 1 auth secret\r");
    terminal.sees("auth secret, every 1s");
    terminal.sees("OK\r\n");
    terminal.interrupt();
    terminal.sees("> ");
    terminal.keys("ping\r");
    terminal.sees("PONG\r\n");
    terminal.keys("exit\r");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ping\nexit\n");
    let mut terminal = Terminal::open(&server, &["--askpass"], Some(name));
    terminal.sees("Please input password: ");
    terminal.keys("secret\r");
    terminal.sees("> ");
    assert!(!terminal.screen.lock().unwrap().contains("secret"));
    terminal.keys("\x1b[A\x1b[A\r");
    terminal.sees("PONG\r\n");
    let mut terminal = Terminal::open(&server, &["--askpass"], Some(name));
    terminal.sees("Please input password: ");
    terminal.paste("secret\n");
    terminal.sees("> ");
    terminal.paste("get k\nauth secret\n");
    terminal.sees("(nil)\r\n");
    terminal.sees("OK\r\n");
    terminal.keys("exit\r");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ping\nexit\nping\nget k\nexit\n");
}

/// A folder can be opened, but not read.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_input_that_cannot_be_read() {
    let server = TestServer::bobbin(&[]);
    let mut command = program();
    command.args(["-p", &server.address().port().to_string()]);
    let output = command.stdin(File::open("/").unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Is a directory"), "{output:?}");
}
