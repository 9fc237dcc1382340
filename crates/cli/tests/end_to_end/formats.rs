//! Replies in all forms, byte for byte as valkey-cli prints them.

use std::process::Command;

use crate::common::{finish, program};
use bobbin_testkit::{TestServer, peers};

const SETUP: &[&[&str]] = &[
    &["SET", "s", "hello"],
    &["SET", "t", "tab\tline\nquote\"back\\slash\r"],
    &["SET", "utf8", "äöü€"],
    &["RPUSH", "l", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"],
    &["HSET", "h", "f", "v", "1", "2"],
    &["ZADD", "z", "1", "a", "2.5", "b", "inf", "c"],
    &["SADD", "e", "a", "b", "c"],
    &["XADD", "x", "1-1", "a", "b", "c", "d"],
    &["XADD", "x", "2-1", "e", "f"],
    &["SETBIT", "bits", "3", "1"],
];

const COMMANDS: &[&[&str]] = &[
    &["GET", "s"],
    &["GET", "t"],
    &["GET", "utf8"],
    &["GET", "bits"],
    &["GET", "none"],
    &["GET"],
    &["NOSUCH", "command"],
    &["LRANGE", "l", "0", "-1"],
    &["LRANGE", "none", "0", "-1"],
    &["HGETALL", "h"],
    &["HGETALL", "none"],
    &["SMEMBERS", "e"],
    &["SMEMBERS", "none"],
    &["ZRANGE", "z", "0", "-1", "WITHSCORES"],
    &["ZSCORE", "z", "b"],
    &["ZMSCORE", "z", "a", "none", "c"],
    &["XRANGE", "x", "-", "+"],
    &["XREAD", "STREAMS", "x", "0"],
    &["XINFO", "STREAM", "x", "FULL"],
    &["INCR", "s"],
    &["STRLEN", "s"],
    &["ECHO", ""],
    &["PING"],
    &["COMMAND", "INFO", "get", "nope", "xadd"],
    &["COMMAND", "DOCS", "set"],
    &["CONFIG", "GET", "maxmemory*"],
    &["CONFIG", "GET", "nope"],
    &["DEBUG", "PROTOCOL", "DOUBLE"],
    &["DEBUG", "PROTOCOL", "NULL"],
    &["DEBUG", "PROTOCOL", "SET"],
    &["DEBUG", "PROTOCOL", "MAP"],
    &["DEBUG", "PROTOCOL", "VERBATIM"],
    &["DEBUG", "PROTOCOL", "TRUE"],
    &["DEBUG", "PROTOCOL", "FALSE"],
    &["DEBUG", "PROTOCOL", "PUSH"],
    &["EVAL", "return {1,{2,{}},{{}},'x',{{{3,4}}}}", "0"],
    &["EVAL", "redis.setresp(3); return {map={a=1}}", "0"],
    &["EVAL", "redis.setresp(3); return {map={a={1,2}}}", "0"],
    &["EVAL", "return redis.error_reply('WRONG thing')", "0"],
    &["CLUSTER", "INFO"],
    &["MEMORY", "DOCTOR"],
    &["SELECT", "99"],
    &["MULTI"],
    &["SCAN", "0", "COUNT", "100"],
];

const FORMS: &[&[&str]] = &[
    &[],
    &["--no-raw"],
    &["--csv"],
    &["--json"],
    &["--quoted-json"],
    &["-2", "--json"],
    &["-3"],
    &["-3", "--no-raw"],
    &["-3", "--csv"],
    &["-3", "--no-raw", "--show-pushes", "yes"],
    &["--raw", "-d", ";", "-D", "|"],
    &["-e"],
];

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn every_form_is_as_valkey_cli_prints_it() {
    let server = TestServer::valkey(&["--enable-debug-command", "yes"]);
    let port = server.address().port().to_string();
    let run = |mut command: Command, arguments: &[&str]| {
        command.args(["-p", &port]).args(arguments).env_remove("FAKETTY");
        let ran = finish(command, b"");
        (ran.bytes, ran.status)
    };
    let mut connection = server.connect();
    for command in SETUP {
        connection.call(command).expect("the server answers");
    }
    let mut differences = Vec::new();
    for form in FORMS {
        for command in COMMANDS {
            let arguments = [*form, *command].concat();
            let expected = run(Command::new(peers::peer("valkey-cli")), &arguments);
            let given = run(program(), &arguments);
            if given != expected {
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                differences.push(format!(
                    "{arguments:?}\n  valkey-cli {:?} {}\n  bobbin-cli {:?} {}",
                    expected.1,
                    text(&expected.0),
                    given.1,
                    text(&given.0)
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
