//! ACL: users, their rights, and what was refused to them.

use bobbin_io::error_text;
use bobbin_resp::Reply;
use bobbin_text::hex;

use crate::base::random::random_bytes;
use crate::engine::acl::check::Asked;
use crate::engine::acl::rules::{category, has_spaces, is_of};
use crate::engine::acl::selector::Selector;
use crate::engine::command::help::{container, help_row};
use crate::engine::command::{Call, Command, Failure, Flags, Outcome};
use crate::engine::row::flags::Categories;

fn setuser(call: &mut Call<'_>) -> Outcome {
    let name = call.args[2];
    if has_spaces(name) {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    let set = call.server.set_user(name, &call.args[3..]);
    set.map_err(|text| Failure::format(format!("ERR {text}")))?;
    call.reply.ok();
    Ok(())
}

fn deluser(call: &mut Call<'_>) -> Outcome {
    let names = &call.args[2..];
    if names.contains(&crate::engine::acl::DEFAULT_USER) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let id = call.client.info.id;
    let deleted = names.iter().filter(|name| call.server.delete_user(name, id)).count();
    end_if_deleted(call);
    call.reply.integer(deleted as i64);
    Ok(())
}

/// If a client deleted its own user, closes its connection after the reply.
fn end_if_deleted(call: &mut Call<'_>) {
    let own = call.client.info.user();
    if own.is_some_and(|own| call.server.acl.renewed(&own).is_none()) {
        call.client.close();
    }
}

fn getuser(call: &mut Call<'_>) -> Outcome {
    let Some(user) = call.server.acl.find(call.args[2]) else {
        call.reply.null();
        return Ok(());
    };
    let reply = &mut call.reply;
    reply.map(7);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().iter().for_each(|hash| reply.bulk(hex(hash).as_bytes()));
    describe(reply, user.root());
    reply.bulk(b"selectors");
    reply.array(user.other_selectors().len());
    for selector in user.other_selectors() {
        reply.map(4);
        describe(reply, selector);
    }
    Ok(())
}

/// Describes a selector in four fields.
fn describe(reply: &mut Reply<'_>, selector: &Selector) {
    reply.bulk(b"commands");
    reply.bulk(&selector.describe_commands());
    reply.bulk(b"keys");
    reply.bulk(&selector.describe_keys());
    reply.bulk(b"channels");
    reply.bulk(&selector.describe_channels());
    reply.bulk(b"databases");
    reply.bulk(&selector.describe_databases());
}

fn list(call: &mut Call<'_>) -> Outcome {
    let users = call.server.acl.all();
    call.reply.array(users.len());
    users.iter().for_each(|user| call.reply.bulk(&user.line()));
    Ok(())
}

fn users(call: &mut Call<'_>) -> Outcome {
    let users = call.server.acl.all();
    call.reply.array(users.len());
    users.iter().for_each(|user| call.reply.bulk(&user.name));
    Ok(())
}

fn whoami(call: &mut Call<'_>) -> Outcome {
    match call.client.rights.user() {
        Some(user) => call.reply.bulk(&user.name),
        None => call.reply.null(),
    }
    Ok(())
}

/// `ACL CAT [category]`
fn cat(call: &mut Call<'_>) -> Outcome {
    let names: Vec<&str> = match call.args[2..] {
        [] => Categories::NAMES.iter().map(|(_, name)| *name).collect(),
        [name] => {
            let Some(category) = category(name) else {
                let name = String::from_utf8_lossy(&name[..name.len().min(SHOWN_MAX)]);
                return Err(Failure::format(format!("ERR Unknown category '{name}'")));
            };
            let all = call.server.registry.all().iter();
            let fitting = all.filter(|command| is_of(command, category));
            fitting.map(|command| &*command.full_name).collect()
        }
        _ => return Err(Failure::wrong_subcommand("ACL", call.args[1])),
    };
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name.as_bytes()));
    Ok(())
}

/// `ACL DRYRUN user command [argument ...]`. Assumes that the user has selected the client's
/// database.
fn dryrun(call: &mut Call<'_>) -> Outcome {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let (name, args) = (call.args[2], &call.args[3..]);
    let Some(user) = call.server.acl.find(name) else {
        return Err(Failure::format(format!("ERR User '{}' not found", text(name))));
    };
    let command = call.server.registry.find(args[0]);
    let command = command
        .and_then(|command| command.of_words(args))
        .ok_or_else(|| Failure::format(format!("ERR Command '{}' not found", text(args[0]))))?;
    if !command.accepts(args.len()) {
        return Err(Failure::wrong_arity(command));
    }
    let (database, databases) = (call.client.database, call.server.config.databases() as u32);
    match user.check(&Asked { command, args, database, databases }) {
        Ok(()) => call.reply.ok(),
        Err(denied) => {
            call.reply.bulk(denied.text(&user, command, Some(args[denied.at])).as_bytes());
        }
    }
    Ok(())
}

/// `ACL GENPASS [bits]`
fn genpass(call: &mut Call<'_>) -> Outcome {
    let bits = match call.args.len() {
        2 => GENPASS_DEFAULT_BITS,
        3 => call.integer(2)?,
        _ => return Err(Failure::wrong_subcommand("ACL", call.args[1])),
    };
    if !(1..=GENPASS_MAX_BITS).contains(&bits) {
        return Err(Failure::format(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {GENPASS_MAX_BITS}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let random: [u8; GENPASS_MAX_BITS as usize / 8] = random_bytes();
    call.reply.bulk(&hex(&random[..digits.div_ceil(2)]).as_bytes()[..digits]);
    Ok(())
}

/// `ACL LOG [count | RESET]`
fn log(call: &mut Call<'_>) -> Outcome {
    let count = match call.args.len() {
        2 => LOG_DEFAULT_COUNT,
        3 if call.word_is(2, "reset") => {
            call.server.acl.log.reset();
            call.reply.ok();
            return Ok(());
        }
        3 => usize::try_from(call.integer(2)?).unwrap_or(0),
        _ => return Err(Failure::wrong_subcommand("ACL", call.args[1])),
    };
    let entries = call.server.acl.log.entries(count);
    let (reply, now_ms) = (&mut call.reply, call.data.conditions.now_ms);
    reply.array(entries.len());
    for entry in &entries {
        reply.map(10);
        reply.bulk(b"count");
        reply.integer(entry.count as i64);
        reply.bulk(b"reason");
        reply.bulk(entry.event.reason.name().as_bytes());
        reply.bulk(b"context");
        reply.bulk(entry.event.context.name().as_bytes());
        reply.bulk(b"object");
        reply.bulk(&entry.event.object);
        reply.bulk(b"username");
        reply.bulk(&entry.event.user);
        reply.bulk(b"age-seconds");
        reply.double((now_ms - entry.updated_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
        reply.bulk(b"entry-id");
        reply.integer(entry.id as i64);
        reply.bulk(b"timestamp-created");
        reply.integer(entry.created_ms);
        reply.bulk(b"timestamp-last-updated");
        reply.integer(entry.updated_ms);
    }
    Ok(())
}

fn load(call: &mut Call<'_>) -> Outcome {
    check_file(call)?;
    let loaded = call.server.load_user_file(call.client.info.id);
    loaded.map_err(|errors| Failure::format(format!("ERR {errors}")))?;
    end_if_deleted(call);
    call.reply.ok();
    Ok(())
}

fn save(call: &mut Call<'_>) -> Outcome {
    check_file(call)?;
    if let Err(error) = call.server.save_user_file() {
        ::log::warn!("Cannot write the ACL file: {}", error_text(&error));
        return Err("ERR There was an error trying to save the ACLs. Please check the server logs for more \
                    information"
            .into());
    }
    call.reply.ok();
    Ok(())
}

fn check_file(call: &Call<'_>) -> Outcome {
    if !call.server.config.aclfile().is_empty() {
        return Ok(());
    }
    Err("ERR This instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER \
         command and then issue a CONFIG REWRITE (assuming you have a configuration file set) in order to store users \
         in the configuration."
        .into())
}

const GENPASS_DEFAULT_BITS: i64 = 256;
const GENPASS_MAX_BITS: i64 = 4096;
const LOG_DEFAULT_COUNT: usize = 10;
/// How many bytes of a word an error shows.
const SHOWN_MAX: usize = 128;

const OPEN: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const ADMIN: Flags = OPEN.with(Flags::ADMIN);
/// A change needs the gate, because the rules are used by all workers.
const CHANGE: Flags = ADMIN.with(Flags::GATE);
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];
const PER_USER: &str = "O(N), N: users";

const fn row(
    name: &'static str,
    arity: i32,
    handler: crate::engine::command::Handler,
    flags: Flags,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).flags(flags).doc("server", "6.0.0", complexity, summary)
}

pub(super) const COMMANDS: &[Command] = &[Command::new("acl", -2, container)
    .doc(
        "server",
        "6.0.0",
        "Depends on subcommand.",
        "Holds the commands about users and their rights.",
    )
    .subcommands(&[
        row("cat", -2, cat, OPEN, "O(N), N: commands", "Lists categories, or the commands of one.")
            .syntax("[category]"),
        row(
            "deluser",
            -3,
            deluser,
            CHANGE,
            "O(N), N: clients",
            "Deletes users, and ends their clients.",
        )
        .tips(ALL_NODES)
        .syntax("username [username ...]"),
        row("dryrun", -4, dryrun, ADMIN, "O(1)", "Tells whether a user might run a command.")
            .syntax("username command [arg [arg ...]]")
            .since("7.0.0"),
        row("genpass", -2, genpass, OPEN, "O(1)", "Makes up a password.").syntax("[bits:int]"),
        row("getuser", 3, getuser, ADMIN, "O(N), N: rules of the user", "Shows a user's rules.")
            .syntax("username")
            .history(&[
                ("6.2.0", "Shows patterns of channels."),
                ("7.0.0", "Shows selectors; keys and channels are shown as rules."),
                ("9.1.0", "Shows databases."),
            ]),
        help_row("server", "6.0.0"),
        row("list", 2, list, ADMIN, PER_USER, "Shows all users as the rules that make them."),
        row("load", 2, load, CHANGE, PER_USER, "Takes all users from the file of `aclfile`."),
        row("log", -2, log, ADMIN, "O(N), N: entries shown", "Shows what users were refused.")
            .syntax("[<count:int | RESET>] :operation")
            .history(&[("7.2.0", "Entries have ids, and tell when they were made and changed.")]),
        row("save", 2, save, ADMIN, PER_USER, "Writes all users into the file of `aclfile`.")
            .tips(ALL_NODES),
        row(
            "setuser",
            -3,
            setuser,
            CHANGE,
            "O(N), N: rules given",
            "Makes a user, or adds rules to one.",
        )
        .tips(ALL_NODES)
        .syntax("username [rule [rule ...]]")
        .history(&[
            ("6.2.0", "Knows patterns of channels."),
            ("7.0.0", "Knows selectors, and keys to be only read or only written."),
            ("9.1.0", "Knows databases."),
        ]),
        row("users", 2, users, ADMIN, PER_USER, "The names of all users."),
        row("whoami", 2, whoami, OPEN, "O(1)", "The name of the user that the client is."),
    ])];

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::embedded::Embedded;

    /// Each line of the log would keep the whole name.
    #[test]
    fn the_log_keeps_the_beginning_of_long_names() {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let mut admin = embedded.connect();
        embedded.feed(&mut admin, b"ACL SETUSER u on nopass ~a* &* +@all\r\n");
        let mut client = embedded.connect();
        let name = "n".repeat(10_000);
        for line in [
            "AUTH u p".to_owned(),
            format!("CLIENT SETNAME {name}"),
            format!("CLIENT SETINFO lib-name {name}"),
            format!("CLIENT SETINFO lib-ver {name}"),
        ] {
            assert_eq!(embedded.feed(&mut client, format!("{line}\r\n").as_bytes()), b"+OK\r\n");
        }
        let refused = embedded.feed(&mut client, b"GET b\r\n");
        assert!(refused.starts_with(b"-NOPERM"));
        let log = String::from_utf8_lossy(embedded.feed(&mut admin, b"ACL LOG\r\n")).into_owned();
        let kept = "n".repeat(128);
        assert!(log.contains(&format!(" name={kept} age=")), "{log}");
        assert!(log.contains(&format!(" lib-name={kept} lib-ver={kept} ")), "{log}");
    }
}
