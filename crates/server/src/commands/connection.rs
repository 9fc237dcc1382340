//! Commands about the connection itself.

use crate::command::{Call, Categories, Command, Flags, Outcome};

fn ping(call: &mut Call<'_>) -> Outcome {
    match call.args {
        [_] => call.reply.simple("PONG"),
        [_, message] => call.reply.bulk(message),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

fn echo(call: &mut Call<'_>) -> Outcome {
    call.reply.bulk(call.args[1]);
    Ok(())
}

const ANYTIME: Flags = Flags::LOADING.with(Flags::STALE).with(Flags::FAST);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ping", -1, ping)
        .flags(Flags::FAST)
        .categories(Categories::CONNECTION)
        .doc("connection", "1.0.0", "O(1)", "Answers PONG, or the message.")
        .syntax("[message]"),
    Command::new("echo", 2, echo)
        .flags(ANYTIME)
        .categories(Categories::CONNECTION)
        .doc("connection", "1.0.0", "O(1)", "Answers the message.")
        .syntax("message"),
];
