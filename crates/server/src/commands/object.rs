//! OBJECT: how a value is stored, and how it was used.

use crate::engine::command::help::{container, help_row};
use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome};
use crate::engine::row::keys::{KeySpec, KeyUse};

fn encoding(call: &mut Call<'_>) -> Outcome {
    match call.data.inspect(call.key(2)?) {
        Some(entry) => call.reply.bulk(entry.encoding().name().as_bytes()),
        None => call.reply.null(),
    }
    Ok(())
}

fn refcount(call: &mut Call<'_>) -> Outcome {
    match call.data.inspect(call.key(2)?) {
        Some(_) => call.reply.integer(1),
        None => call.reply.null(),
    }
    Ok(())
}

fn freq(call: &mut Call<'_>) -> Outcome {
    let clock = call.data.conditions.clock;
    let Some(entry) = call.data.inspect(call.key(2)?) else {
        call.reply.null();
        return Ok(());
    };
    if !call.server.config.maxmemory_policy().is_lfu() {
        return Err(NOT_LFU);
    }
    call.reply.integer(clock.frequency(entry.access()).into());
    Ok(())
}

fn idletime(call: &mut Call<'_>) -> Outcome {
    let clock = call.data.conditions.clock;
    let Some(entry) = call.data.inspect(call.key(2)?) else {
        call.reply.null();
        return Ok(());
    };
    if call.server.config.maxmemory_policy().is_lfu() {
        return Err(LFU);
    }
    call.reply.integer(clock.idle_seconds(entry.access()).into());
    Ok(())
}

const NOT_LFU: Failure = Failure::new(
    &"ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
     when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
const LFU: Failure = Failure::new(
    &"ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
     when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);

const KEY: &[KeySpec] = &[KeySpec::at(2, KeyUse::READ_ONLY)];

const fn about_key(row: Command) -> Command {
    row.flags(Flags::READONLY)
        .categories(Categories::KEYSPACE)
        .keys(KEY)
        .syntax("key")
        .tips(&["nondeterministic_output"])
}

pub(super) const COMMANDS: &[Command] = &[Command::new("object", -2, container)
    .doc(
        "generic",
        "2.2.3",
        "Depends on subcommand.",
        "Groups the commands about how values are kept.",
    )
    .subcommands(&[
        about_key(Command::new("encoding", 3, encoding)).doc(
            "generic",
            "2.2.3",
            "O(1)",
            "Answers how a value is kept.",
        ),
        about_key(Command::new("freq", 3, freq)).doc(
            "generic",
            "4.0.0",
            "O(1)",
            "Answers how often a key was used, on a logarithmic scale.",
        ),
        help_row("generic", "6.2.0").categories(Categories::KEYSPACE),
        about_key(Command::new("idletime", 3, idletime)).doc(
            "generic",
            "2.2.3",
            "O(1)",
            "Answers for how long a key was not used.",
        ),
        about_key(Command::new("refcount", 3, refcount)).doc(
            "generic",
            "2.2.3",
            "O(1)",
            "Answers how many references there are to a value.",
        ),
    ])];

#[cfg(test)]
mod tests {
    use crate::config::{Config, OptionId};
    use crate::embedded::Embedded;

    #[test]
    fn debug_object_tells_how_often_and_when_a_key_was_used() {
        let config = Config::new();
        for (option, value) in
            [(OptionId::maxmemory_policy, "allkeys-lfu"), (OptionId::enable_debug_command, "yes")]
        {
            config.set_internally(option, value).expect("it is an option");
        }
        let mut embedded = Embedded::new(config, 1).expect("it starts");
        embedded.set_time(1_700_000_000_000);
        let mut session = embedded.connect();
        let reply = embedded.feed(&mut session, b"SET k v\r\nDEBUG OBJECT k\r\n");
        let reply = String::from_utf8_lossy(reply).into_owned();
        let minute = (1_700_000_000 / 60) % (1 << 16);
        let expected = format!(" lfu_freq:5 lfu_access_time_minutes:{minute}\r\n");
        assert!(reply.ends_with(&expected), "{reply}");
    }

    /// As valkey-server 9.1.2 answers. Where every use counts, a key that is made has 5.
    #[test]
    fn each_command_counts_as_one_use_and_making_a_key_as_none() {
        let config = Config::new();
        for (option, value) in [
            (OptionId::maxmemory_policy, "allkeys-lfu"),
            (OptionId::lfu_log_factor, "0"),
            (OptionId::lfu_decay_time, "0"),
        ] {
            config.set_internally(option, value).expect("it is an option");
        }
        let mut embedded = Embedded::new(config, 1).expect("it starts");
        let mut session = embedded.connect();
        for (line, key, used) in [
            ("SET string v", "string", 5),
            ("SET string v", "string", 6),
            ("SET string v XX", "string", 7),
            ("SET string v IFEQ v", "string", 8),
            ("SET string v NX", "string", 9),
            ("SET other v NX", "other", 5),
            ("LPUSH list a", "list", 5),
            ("LPUSH list b", "list", 6),
            ("SADD set a", "set", 5),
            ("HSET hash f v", "hash", 5),
            ("ZADD sorted 1 a", "sorted", 5),
            ("XADD stream * f v", "stream", 5),
            ("LMOVE list moved LEFT LEFT", "moved", 5),
            ("PFADD estimate a", "estimate", 5),
            ("PFADD estimate b", "estimate", 6),
            ("RENAMENX estimate other", "other", 6),
            ("COPY estimate other", "other", 7),
        ] {
            embedded.feed(&mut session, format!("{line}\r\n").as_bytes());
            let asked = format!("OBJECT FREQ {key}\r\n");
            let reply = embedded.feed(&mut session, asked.as_bytes());
            let reply = String::from_utf8_lossy(reply).into_owned();
            assert_eq!(reply, format!(":{used}\r\n"), "{line}");
        }
    }
}
