//! What `docs/benchmark.md` shows of a shell is what the program prints, but for the figures: its
//! blocks of `console`. Blocks of `text` need other programs, a cluster, a server that stands
//! still, or minutes.

use bobbin_testkit::TestServer;
use bobbin_testkit::pages::{PageShell, blocks};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_shows() {
    const PAGE: &str = "docs/benchmark.md";
    let server = TestServer::bobbin(&["--save", ""]);
    let mut shell = PageShell::new();
    let (program, port) = (env!("CARGO_BIN_EXE_bobbin-benchmark"), server.address().port());
    shell.program("bobbin-benchmark", &format!("exec '{program}' \"$@\" -p {port}"));
    shell.mean("127.0.0.1:6379", &format!("127.0.0.1:{port}"));
    // What is printed is the same for a tenth of the requests, but for numbers.
    shell.mean("-n 200000 -P", "-n 20000 -P");
    shell.mean("-n 20000 --hide", "-n 2000 --hide");
    shell.mean("bobbin-benchmark expire", "bobbin-benchmark expire -n 30000");
    let blocks = blocks(PAGE, "console");
    assert!(!blocks.is_empty());
    blocks.iter().for_each(|block| shell.hold(PAGE, block));
}
