//! `bobbin-cli top`: as text, and on a terminal of the test's own.

use crate::common::{eventually, finish, program, run};
use crate::shell::Terminal;
use bobbin_testkit::{Server, server::free_port};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_look_as_text() {
    let server = Server::bobbin(&[]);
    let text = run(&server, &["-i", "0.1", "top"]).ok();
    assert!(text.starts_with("bobbin "), "{text}");
    for words in ["\nLoad\n  commands/s  ", "\n  worker 0 ", "\n  ping ", "bobbin-cli-top"] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    let text = run(&server, &["-i", "0.1", "-r", "2", "top"]).ok();
    assert_eq!(text.matches("\nLoad\n").count(), 2, "{text}");
    let mut nowhere = program();
    nowhere.args(["-p", &free_port().unwrap().to_string(), "top"]);
    let error = finish(nowhere, b"").failed();
    assert!(error.starts_with("Could not connect to 127.0.0.1:"), "{error}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_client_is_disconnected_by_hand() {
    let server = Server::bobbin(&[]);
    let mut client = server.connect();
    assert!(!client.say("CLIENT SETNAME nuisance").is_error());
    let mut terminal = Terminal::open(&server, &["-i", "0.1", "top"], None);
    // The whole screen is another one, which the first sample fills.
    terminal.sees("\x1b[?1049h");
    terminal.sees("Busiest");
    terminal.keys("4");
    terminal.sees("nuisance");
    terminal.keys("/nuisance\rk");
    terminal.sees("Disconnect");
    terminal.keys("n");
    terminal.sees("Nobody");
    assert!(!client.say("PING").is_error());
    terminal.keys("k");
    terminal.sees("Disconnect");
    terminal.keys("y");
    eventually("the client is disconnected", || client.call(&["PING"]).is_err());
    terminal.keys("q");
    terminal.sees("\x1b[?1049l");
    assert_eq!(terminal.ends(), Some(0));
}
