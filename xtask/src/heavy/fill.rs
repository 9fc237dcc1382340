//! Large values, loaded in large steps.

use bobbin_testkit::TestConnection;
use bobbin_testkit::connection::encode_command;

use crate::probe;

/// Makes a value of `members` members, or that many keys.
pub(super) fn fill(control: &mut TestConnection, what: &str, members: usize) -> Result<(), String> {
    let head: &[&str] = match what {
        "keys" => &["MSET"],
        "list" => &["RPUSH", what],
        "zset" | "zset2" => &["ZADD", what],
        _ => &["SADD", what],
    };
    let text = |error: std::io::Error| format!("loading {what}: {error}");
    let mut at = 0;
    while at < members {
        let (mut bytes, mut commands) = (Vec::new(), 0);
        while commands < PIPELINED && at < members {
            let end = members.min(at + PER_COMMAND);
            let mut command: Vec<String> = head.iter().map(|word| (*word).to_owned()).collect();
            (at..end).for_each(|i| words(what, i, members, &mut command));
            encode_command(&command, &mut bytes);
            commands += 1;
            at = end;
        }
        control.send_raw(&bytes).map_err(text)?;
        for _ in 0..commands {
            let reply = control.receive().map_err(text)?;
            if reply.is_error() {
                return Err(format!("loading {what}: {}", reply.text()));
            }
        }
    }
    Ok(())
}

/// Empties the server but for what the probe asks for.
pub(super) fn empty(control: &mut TestConnection) {
    control.say("FLUSHALL");
    let reply = control.call(&["SET", probe::KEY, probe::VALUE]).expect("is answered");
    assert_eq!(reply.text(), "OK");
}

/// What number `i` adds to a command.
fn words(what: &str, i: usize, members: usize, command: &mut Vec<String>) {
    // The second of two shares half of its members with the first.
    let shifted = i + members / 2;
    match what {
        "set2" => command.push(format!("member:{shifted:09}")),
        "list" => command.push((i as u64 * 2_654_435_761 % 4_294_967_291).to_string()),
        "zset" => command.extend([(i * 7 % 1_000_003).to_string(), format!("member:{i:09}")]),
        "zset2" => command.extend([i.to_string(), format!("member:{shifted:09}")]),
        "keys" => command.extend([format!("key:{i:09}"), "value".to_owned()]),
        _ => command.push(format!("member:{i:09}")),
    }
}

const PER_COMMAND: usize = 500;
const PIPELINED: usize = 100;
