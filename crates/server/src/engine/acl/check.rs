//! Checks whether a user may run a command.

use super::log::{AclEvent, Scene};
use super::selector::{Databases, Selector};
use super::user::User;
use crate::config::Config;
use crate::engine::row::keys::{ChannelArguments, DatabaseUse};
use crate::engine::row::{Facts, Failure, Flags};

/// A refusal of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    pub reason: Reason,
    /// The index of the argument that was refused; 0 for the command itself.
    pub at: usize,
}

/// The reason of a refusal. If several selectors refuse, the highest reason is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Reason {
    Database,
    Command,
    Key,
    Channel,
    /// A wrong password. Only ACL LOG shows this reason.
    Password,
    /// A certificate names a user that does not exist.
    Certificate,
}

impl Reason {
    pub const COUNT: usize = 6;

    /// The name in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Password => "auth",
            Self::Certificate => "tls-cert",
        }
    }
}

/// A command that is about to run.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub command: &'a Facts,
    pub args: &'a [&'a [u8]],
    pub database: u32,
    /// The number of databases.
    pub databases: u32,
}

impl User {
    /// Checks a command. Returns an error if no selector allows all of it.
    pub fn check(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        let mut worst = Denied { reason: Reason::Database, at: 0 };
        for selector in self.selectors() {
            let Err(denied) = selector.check(asked) else { return Ok(()) };
            if (denied.reason, denied.at) > (worst.reason, worst.at) {
                worst = denied;
            }
        }
        Err(worst)
    }

    /// Whether the user may run the command, and may also read keys that the command does not name.
    pub fn may_read_all(&self, asked: &Asked<'_>) -> bool {
        self.selectors()
            .any(|selector| selector.keys.allow_reading_all() && selector.check(asked).is_ok())
    }

    /// Whether the user may listen to a channel or a pattern.
    pub fn may_listen(&self, name: &[u8], is_pattern: bool) -> bool {
        self.selectors().any(|selector| selector.channels.allow(name, is_pattern))
    }
}

impl Selector {
    fn check(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        if self.databases != Databases::All {
            self.check_databases(asked)?;
        }
        let Asked { command, args, .. } = *asked;
        if !self.commands.has(command) && !command.has(Flags::NO_AUTH) {
            self.check_first_arg(command, args)?;
        }
        if !command.accepts(args.len()) {
            // The command will be refused for its arity, before its arguments are used.
            return Ok(());
        }
        let mut denied = None;
        if self.keys != super::selector::KeyRules::All {
            command.key_uses(args, |at, usage| {
                if denied.is_none() && !self.keys.allow(args[at], usage) {
                    denied = Some(Denied { reason: Reason::Key, at });
                }
            });
        }
        if denied.is_none() && self.channels != super::selector::ChannelRules::All {
            denied = self.denied_channel(command, args);
        }
        denied.map_or(Ok(()), Err)
    }

    fn check_first_arg(&self, command: &Facts, args: &[&[u8]]) -> Result<(), Denied> {
        let first = args.get(if command.parent.is_some() { 2 } else { 1 });
        let is_allowed = |(id, arg): &(usize, Box<[u8]>)| {
            *id == command.id && first.is_some_and(|first| first.eq_ignore_ascii_case(arg))
        };
        if self.first_args.iter().any(is_allowed) {
            return Ok(());
        }
        Err(Denied { reason: Reason::Command, at: 0 })
    }

    /// Checks the databases that the arguments name, then the selected one.
    fn check_databases(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        let Asked { command, args, database, databases } = *asked;
        let deny = |at| Err(Denied { reason: Reason::Database, at });
        match command.row.databases {
            DatabaseUse::Selected => {}
            DatabaseUse::Every => {
                let all = (0..databases).all(|number| self.databases.allow(number));
                return if all { Ok(()) } else { deny(0) };
            }
            DatabaseUse::Named(find) => {
                let (mut denied, mut is_sound) = (None, true);
                find(args, &mut |at| {
                    let number = args.get(at).and_then(|word| bobbin_resp::parse_i64(word));
                    let number = number.and_then(|number| u32::try_from(number).ok());
                    match number.filter(|number| *number < databases) {
                        Some(number) if self.databases.allow(number) => {}
                        Some(_) => denied = denied.or(Some(at)),
                        None => is_sound = false,
                    }
                });
                // If an argument is not a valid database, the command itself reports that.
                if let Some(at) = denied.filter(|_| is_sound) {
                    return deny(at);
                }
            }
        }
        if command.uses_selected_database && !self.databases.allow(database) {
            return deny(0);
        }
        Ok(())
    }

    fn denied_channel(&self, command: &Facts, args: &[&[u8]]) -> Option<Denied> {
        let (named, is_pattern) = match command.row.channels {
            ChannelArguments::None => return None,
            ChannelArguments::First => (&args[1..2], false),
            ChannelArguments::All => (&args[1..], false),
            ChannelArguments::Patterns => (&args[1..], true),
        };
        let at = named.iter().position(|name| !self.channels.allow(name, is_pattern))?;
        Some(Denied { reason: Reason::Channel, at: at + 1 })
    }
}

impl<'a> Asked<'a> {
    pub fn new(command: &'a Facts, args: &'a [&'a [u8]], database: u32, config: &Config) -> Self {
        Self { command, args, database, databases: config.databases() as u32 }
    }
}

impl Denied {
    /// The event for ACL LOG.
    pub fn event(self, scene: Scene, command: &Facts, args: &[&[u8]], user: &User) -> AclEvent {
        let object = match self.at {
            0 => command.full_name.as_bytes(),
            at => args[at],
        };
        AclEvent::new(self.reason, scene, object, &user.name)
    }

    /// The text of the reply, without its code. `named`: the name of the refused object, which ACL
    /// DRYRUN shows.
    pub fn text(self, user: &User, command: &Facts, named: Option<&[u8]>) -> String {
        let user = String::from_utf8_lossy(&user.name);
        let (short, kind) = match self.reason {
            Reason::Command => {
                let command = &command.full_name;
                return format!("User {user} has no permissions to run the '{command}' command");
            }
            Reason::Key => ("No permissions to access a key", "key"),
            Reason::Channel => ("No permissions to access a channel", "channel"),
            Reason::Database => ("No permissions to access database", "database"),
            Reason::Password | Reason::Certificate => ("WRONGPASS", "password"),
        };
        let Some(name) = named.map(String::from_utf8_lossy) else { return short.into() };
        match self.reason {
            Reason::Database => format!("User {user} has no permissions to access database {name}"),
            _ => format!("User {user} has no permissions to access the '{name}' {kind}"),
        }
    }

    /// The error if EXEC finds that the rules have changed since MULTI.
    pub fn too_late(self) -> Failure {
        let reason = match self.reason {
            Reason::Command => "no permission to execute the command or subcommand",
            Reason::Key => "no permission to touch the specified keys",
            Reason::Channel => "no permission to access one of the channels used as arguments",
            Reason::Database | Reason::Password | Reason::Certificate => "no permission",
        };
        Failure::format(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {reason}"
        ))
    }
}
