//! Runs a test on the peer, which shows that the test is right, and then on Bobbin.

use bobbin_testkit::{Server, peers};

/// Calls `test` with a fresh Valkey and with a fresh Bobbin, and each server's name.
pub(crate) fn on_both(arguments: &[&str], test: impl Fn(&str, &mut Server)) {
    test("valkey", &mut Server::valkey(arguments));
    match Server::bobbin(arguments) {
        Some(mut server) => test("bobbin", &mut server),
        None => {
            assert!(peers::bobbin().is_none());
            eprintln!("SKIPPED on Bobbin: there is no bobbin-server yet");
        }
    }
}
