//! The pages that people see, in a real browser: the dashboard of a server with data and load, the
//! page that a sweep of bobbin-benchmark writes, and some of the book's. `tests/pages` has the
//! checks, which run on Node.js; Chromium comes from the distribution.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bobbin_testkit::server::free_port;
use bobbin_testkit::{TestConnection, TestServer, peers};
use serde_json::{Value, json};

use crate::shell::{self, TaskResult};
use crate::{book, npm};

/// Checks the pages, and leaves pictures of them in `target/pages`. How soon they show something is
/// told of the server that `$BOBBIN_SERVER` names, which should be a release, or of a new build.
pub(crate) fn run() -> TaskResult {
    let browser = install()?;
    book::run()?;
    if std::env::var_os("BOBBIN_SERVER").is_none() {
        shell::run(&mut shell::cargo(&["build", "-p", "bobbin-server", "-p", "bobbin-benchmark"]))?;
    }
    let pictures = peers::repository().join("target/pages");
    shell::create_folder(&pictures)?;
    let benchmark = benchmark_page(&pictures)?;
    let busy = Busy::start()?;
    let (closed, closed_port) = serve(&["--requirepass", PASSWORD])?;
    let mut client = closed.connect();
    client.say(&format!("AUTH {PASSWORD}"));
    client.say(&format!("CLIENT SETNAME {SECRET}"));
    client.say(&format!("ACL SETUSER {USER} on >{PASSWORD} ~* &* +@all"));
    let plan = json!({
        "browser": browser,
        "pictures": pictures,
        "dashboard": { "address": busy.address, "threads": THREADS, "shown": shown() },
        "signIn": {
            "address": address(closed_port),
            "user": USER,
            "password": PASSWORD,
            "secret": SECRET,
        },
        "benchmark": file_address(&benchmark),
        "book": book_pages(),
    });
    let file = pictures.join("plan.json");
    shell::write(&file, &plan.to_string())?;
    shell::run(Command::new("node").arg("run.js").arg(&file).current_dir(folder()))
}

/// Installs what drives the browser, and returns the browser's path.
fn install() -> Result<PathBuf, String> {
    crate::peers::install()?;
    shell::copy_files("tests/pages", &folder())?;
    npm::install(&folder())?;
    let browser = Path::new("/usr/bin/chromium");
    if !browser.exists() {
        shell::install_packages(&["chromium"])?;
    }
    Ok(browser.to_owned())
}

/// A sweep of two servers, short: its page has all that a long one has.
fn benchmark_page(folder: &Path) -> Result<PathBuf, String> {
    let prefix = folder.join("sweep");
    let servers =
        format!("{},{}", peers::bobbin().display(), peers::peer("valkey-server").display());
    let mut sweep = Command::new(program("bobbin-benchmark"));
    sweep.args([
        "sweep",
        "--server",
        &servers,
        "--io-threads",
        "1,2",
        "--tests",
        "set,get,lrange_100",
    ]);
    sweep.args(["-P", "1,16", "--seconds", "0.3", "--threads", "1", "--output"]).arg(&prefix);
    shell::output(&mut sweep)?;
    Ok(prefix.with_extension("html"))
}

/// A server with keys of all types, a replica, and what else the dashboard has a place for, and a
/// program that keeps it busy.
struct Busy {
    address: String,
    load: Child,
    _servers: [TestServer; 2],
    _client: TestConnection,
}

impl Busy {
    fn start() -> Result<Self, String> {
        let (server, port) = serve(&[
            "--enable-debug-command",
            "yes",
            "--latency-monitor-threshold",
            "10",
            "--maxmemory",
            "1gb",
        ])?;
        let server_port = server.address().port().to_string();
        let replica = TestServer::bobbin(&["--replicaof", &format!("127.0.0.1 {server_port}")]);
        let mut client = server.connect();
        for command in COMMANDS {
            client.say(command);
        }
        let refused = ["CLIENT", "SETNAME", HOSTILE];
        client.call(&refused).map_err(|error| error.to_string())?;
        client
            .call(&["RPUSH", HOSTILE, &"x".repeat(300_000)])
            .map_err(|error| error.to_string())?;
        let load = Command::new(program("bobbin-benchmark"))
            .args(["-p", &server_port, "-t", "get,set", "-r", "500", "-c", "4", "--threads", "1"])
            .args(["--rps", "2000", "-n", "1000", "-l", "-q"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        bobbin_testkit::until(|| server.info("connected_slaves") == "1");
        Ok(Self { address: address(port), load, _servers: [server, replica], _client: client })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.load.kill();
        let _ = self.load.wait();
    }
}

/// A Bobbin with a dashboard, and the port of that.
fn serve(arguments: &[&str]) -> Result<(TestServer, u16), String> {
    let port = free_port().map_err(|error| error.to_string())?;
    let (port_text, threads) = (port.to_string(), THREADS.to_string());
    let own = ["--metrics-port", &port_text, "--io-threads", &threads];
    Ok((TestServer::bobbin(&[&own, arguments].concat()), port))
}

/// A program that was built beside the server.
fn program(name: &str) -> PathBuf {
    peers::bobbin().with_file_name(name)
}

fn folder() -> PathBuf {
    peers::cache_folder().join("pages")
}

fn address(port: u16) -> String {
    format!("http://127.0.0.1:{port}/")
}

fn file_address(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Pages of the book by their names: one with pictures, one with much code, one with wide tables.
fn book_pages() -> BTreeMap<&'static str, String> {
    let site = peers::repository().join("target/book");
    let page = |(name, path)| (name, file_address(&site.join(path)));
    BOOK.map(page).into()
}

/// What tables of the dashboard have in a column, as [`COMMANDS`] made it.
fn shown() -> Value {
    json!([
        ["keys-table", 0, "0"],
        ["keys-table", 0, "3"],
        ["types-table", 0, "string"],
        ["types-table", 0, "list"],
        ["types-table", 0, "set"],
        ["types-table", 0, "zset"],
        ["types-table", 0, "hash"],
        ["types-table", 0, "stream"],
        ["largest-table", 0, HOSTILE],
        ["hot-table", 0, "key:…"],
        ["commands-table", 0, "get"],
        ["commands-table", 0, "set"],
        ["slow-table", 2, "DEBUG SLEEP 0.1"],
        ["clients-table", 2, HOSTILE],
        ["replicas-table", 1, "online"],
        ["events-table", 2, "Ready to accept connections tcp"],
        ["delays-table", 0, "command"],
        ["errors-table", 0, "WRONGTYPE"],
        ["memory-table", 0, "Keys and values"],
    ])
}

const THREADS: usize = 2;
const PASSWORD: &str = "lovelace";
const USER: &str = "ada";
/// The name of a client, which a stranger must not see.
const SECRET: &str = "confidential";
/// A name that would be HTML in a page that takes it for some.
const HOSTILE: &str = "</script><img/src=x/onerror=alert(1)>";
const COMMANDS: [&str; 13] = [
    "HOTKEYS START METRICS 2 CPU NET COUNT 5",
    "SET string value",
    "SET other value EX 1000",
    "RPUSH list a b c",
    "SADD set a b c",
    "ZADD zset 1 a 2 b",
    "HSET hash field value",
    "XADD stream * field value",
    "INCR list",
    "DEBUG SLEEP 0.1",
    "SELECT 3",
    "SET third value",
    "BGSAVE",
];
const BOOK: [(&str, &str); 3] = [
    ("start", "index.html"),
    ("concepts", "docs/concepts.html"),
    ("metrics", "docs/reference/metrics.html"),
];
