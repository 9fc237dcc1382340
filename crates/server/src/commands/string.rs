//! Strings.

use bobbin_store::NewValue;
use bobbin_store::shard::Expire;

use crate::command::keys::{KeySpec, KeyUse};
use crate::command::{Call, Categories, Command, Flags, Outcome};

fn get(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1);
    match call.data.read_string(key)? {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    }
    Ok(())
}

fn set(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1);
    call.data.set(key, NewValue::string(call.args[2]), Expire::Clear);
    call.reply.ok();
    Ok(())
}

pub(super) const COMMANDS: &[Command] = &[
    Command::new("get", 2, get)
        .flags(Flags::READONLY.with(Flags::FAST))
        .categories(Categories::STRING)
        .keys(&[KeySpec::at(1, KeyUse::READ_ONLY.with(KeyUse::ACCESS))])
        .doc("string", "1.0.0", "O(1)", "Answers the string at a key.")
        .syntax("key"),
    Command::new("set", -3, set)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .categories(Categories::STRING)
        .keys(&[KeySpec::at(
            1,
            KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::UPDATE).with(KeyUse::VARIABLE),
        )])
        .doc("string", "1.0.0", "O(1)", "Makes a key hold a string, whatever it held.")
        .syntax("key value"),
];
