//! What is pasted into the shell: several lines, long ones, and bytes of no character.

use bobbin_testkit::{ReplyFrame, TestServer};

use crate::shell::Terminal;

/// What is pasted, or typed ahead, is all there.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn several_lines_at_once() {
    let server = TestServer::bobbin(&[]);
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    terminal.keys("set k 1\rincr k\rincr k\r");
    terminal.sees("OK\r\n");
    terminal.sees("(integer) 2\r\n");
    terminal.sees("(integer) 3\r\n");
    terminal.paste("rpush l 1\nrpush l 2\n");
    terminal.sees("(integer) 1\r\n");
    terminal.sees("(integer) 2\r\n");
    assert_eq!(server.connect().say("LRANGE l 0 -1").items().len(), 2);
}

/// They are part of the line like others, as in valkey-cli, and the next lines are all there.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bytes_that_are_not_utf_8() {
    let server = TestServer::bobbin(&[]);
    let file = server.folder().join("history");
    let name = file.to_str().unwrap();
    let mut terminal = Terminal::open(&server, &[], Some(name));
    terminal.sees("> ");
    terminal.bytes(b"set k \xfcber\rset second 1\rset third 1\r");
    for _ in 0..3 {
        terminal.sees("OK\r\n");
    }
    terminal.keys("get k\r");
    terminal.sees("\"\\xfcber\"\r\n");
    // It is found by such a byte in the history, in the next session too.
    for next in [false, true] {
        server.connect().say("DEL k");
        if next {
            terminal.keys("exit\r");
            assert_eq!(terminal.ends(), Some(0));
            terminal = Terminal::open(&server, &[], Some(name));
            terminal.sees("> ");
        }
        terminal.bytes(b"\x12\xfcb\r");
        terminal.sees("OK\r\n");
        assert_eq!(server.connect().say("STRLEN k").as_integer(), Some(4));
    }
    terminal.keys("exit\r");
    assert_eq!(terminal.ends(), Some(0));
}

/// What stands behind such a byte is no line of its own, however far behind.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_part_of_a_line_is_a_line() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    client.say("SET x 1");
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    // As much as an editor reads at once stands before the DEL.
    let start = b"ECHO \xfc ";
    let filling = "y".repeat(1024 - start.len());
    terminal.bytes(&[&start[..], filling.as_bytes(), b"DEL x\recho end\r"].concat());
    terminal.sees("\"end\"\r\n");
    assert_eq!(client.say("GET x"), ReplyFrame::bulk("1"));
}

/// The editor draws a line anew for each key, so a long text must not come to it as keys.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_long_line() {
    let server = TestServer::bobbin(&[]);
    let mut terminal = Terminal::open(&server, &[], None);
    terminal.sees("> ");
    let before = terminal.drawn();
    terminal.keys(&format!("set big {}\r", "v".repeat(3000)));
    terminal.sees("OK\r\n");
    let drawn = terminal.drawn() - before;
    assert!(drawn < 300_000, "{drawn} bytes");
    assert_eq!(server.connect().say("STRLEN big").as_integer(), Some(3000));
    terminal.keys("set after 1\r");
    terminal.sees("OK\r\n");
}

/// Where there is no thread to stand before the editor, lines are edited without one.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn lines_without_a_thread() {
    let server = TestServer::bobbin(&[]);
    // No address space has room for the stack of another thread.
    let environment = [("RUST_MIN_STACK", "140737488355328")];
    let mut terminal = Terminal::open_at(server.address(), &[], None, &environment);
    terminal.sees("> ");
    terminal.keys("set k 12\x7f3\r");
    terminal.sees("OK\r\n");
    terminal.keys("get k\r");
    terminal.sees("\"13\"\r\n");
    terminal.keys("exit\r");
    assert_eq!(terminal.ends(), Some(0));
}

/// The lines behind a password are the shell's.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn lines_behind_a_password() {
    let server = TestServer::bobbin(&["--requirepass", "p\u{e4}ss"]);
    let mut terminal = Terminal::open(&server, &["--askpass"], None);
    terminal.sees("Please input password: ");
    terminal.keys("wrong\x15px\x7f\u{e4}ss\rset k 1\rset k2 2\r");
    terminal.sees("> ");
    terminal.sees("OK\r\n");
    terminal.sees("OK\r\n");
    terminal.keys("get k2\r");
    terminal.sees("\"2\"\r\n");
}
