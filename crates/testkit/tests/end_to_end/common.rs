//! Runs a test on the peer, which shows that the test is right, and then on Bobbin.

use bobbin_testkit::TestServer;

/// Calls `test` with a fresh Valkey and with a fresh Bobbin, and each server's name.
pub(crate) fn on_both(arguments: &[&str], test: impl Fn(&str, &mut TestServer)) {
    test("valkey", &mut TestServer::valkey(arguments));
    test("bobbin", &mut TestServer::bobbin(arguments));
}
