//! Reading the command line.

use bobbin_client::{AddressFamily, ServerAddress, nearest};

use super::{
    Mode, Options, ProtocolChoice, StandardInput,
    table::{self, OptionEffect},
};

/// What the arguments say.
pub enum ParsedOptions {
    Run(Box<Options>),
    /// They are wrong; what to print before ending with status 1.
    Wrong(String),
}

/// Reads the arguments behind the program's name. The first one that is no option starts the
/// command.
pub fn parse(arguments: &[Vec<u8>], environment: &Environment, terminal: bool) -> ParsedOptions {
    match try_parse(arguments, environment, terminal) {
        Ok(options) => ParsedOptions::Run(Box::new(options)),
        Err(text) => ParsedOptions::Wrong(text),
    }
}

/// What is read from the environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub password: Option<Vec<u8>>,
    /// As `--cluster-yes`.
    pub assume_yes: bool,
}

fn try_parse(
    arguments: &[Vec<u8>],
    environment: &Environment,
    terminal: bool,
) -> Result<Options, String> {
    let mut options = Options::new(terminal);
    options.manager.assume_yes = environment.assume_yes;
    let mut seen = Seen::default();
    let mut rest = arguments;
    while let [argument, others @ ..] = rest {
        if !argument.starts_with(b"-") {
            break;
        }
        rest = others;
        seen.note(argument);
        let flag = table::find(argument);
        match flag.map(|flag| flag.apply) {
            Some(OptionEffect::Switch(apply)) => apply(&mut options),
            Some(OptionEffect::Value(apply)) if !others.is_empty() => {
                apply(&mut options, &others[0])?;
                rest = &others[1..];
            }
            Some(OptionEffect::Words(apply)) if !others.is_empty() => {
                let taken = apply(&mut options, others)?;
                rest = &others[taken..];
            }
            // The one letter that people type for help.
            Some(_) if argument == b"-h" => options.choose(Mode::Help),
            _ => {
                let argument = String::from_utf8_lossy(argument);
                let mistyped = || nearest(&argument, table::names());
                let meant = match flag {
                    None => table::of_value(&argument).or_else(mistyped),
                    Some(_) => None,
                };
                let meant =
                    meant.map_or_else(String::new, |name| format!("\nDid you mean '{name}'?"));
                return Err(format!(
                    "Unrecognized option or bad number of arguments for: '{argument}'{meant}"
                ));
            }
        }
    }
    options.command = rest.to_vec();
    seen.check(&options)?;
    if options.auth_warning && options.target.password.is_some() {
        complain!(
            "Warning: a password given with '-a' or '-u' can be seen by others on this machine."
        );
    }
    if options.target.password.is_none() {
        options.target.password.clone_from(&environment.password);
    }
    Ok(options)
}

/// Options that were given, as far as they exclude each other.
#[derive(Default)]
struct Seen {
    resp2: bool,
    resp3: bool,
    ipv4: bool,
    ipv6: bool,
    last_argument: bool,
    tag: bool,
    rdb: bool,
    functions_rdb: bool,
}

impl Seen {
    fn note(&mut self, argument: &[u8]) {
        match argument {
            b"-2" => self.resp2 = true,
            b"-3" => self.resp3 = true,
            b"-4" => self.ipv4 = true,
            b"-6" => self.ipv6 = true,
            b"-x" => self.last_argument = true,
            b"-X" => self.tag = true,
            b"--rdb" => self.rdb = true,
            b"--functions-rdb" => self.functions_rdb = true,
            _ => {}
        }
    }

    fn check(&self, options: &Options) -> Result<(), String> {
        debug_assert!(!self.resp3 || options.protocol == ProtocolChoice::Resp3);
        debug_assert!(!self.tag || matches!(options.standard_input, StandardInput::Tag(_)));
        debug_assert!(!self.ipv6 || options.transport.family != AddressFamily::Any);
        let socket = matches!(options.target.address, ServerAddress::Unix(_));
        let pairs = [
            (options.cluster && socket, "-c and -s"),
            (self.resp2 && self.resp3, "-2 and -3"),
            (self.ipv4 && self.ipv6, "-4 and -6"),
            (self.last_argument && self.tag, "-x and -X"),
            (self.rdb && self.functions_rdb, "--rdb and --functions-rdb"),
        ];
        if options.mode == Some(Mode::Cluster)
            && let Some(word) = options.command.first()
        {
            let word = String::from_utf8_lossy(word);
            return Err(format!("Unexpected argument behind the options of --cluster: '{word}'"));
        }
        if options.modes.debugging.is_some() && options.modes.script.is_empty() {
            return Err("Options --ldb and --ldb-sync-mode require --eval.".to_owned());
        }
        match pairs.iter().find(|(both, _)| *both) {
            Some((_, names)) => Err(format!("Options {names} are mutually exclusive.")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::ReplyForm, options::Repeat};

    fn run(line: &str) -> Result<Options, String> {
        let arguments: Vec<_> =
            line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
        try_parse(&arguments, &Environment::default(), false)
    }

    #[test]
    fn the_command_starts_at_the_first_plain_word() {
        let options = run("-p 7000 -r -1 --csv SET -n 1").unwrap();
        assert_eq!(
            options.target.address,
            ServerAddress::Tcp { host: "127.0.0.1".into(), port: 7000 }
        );
        assert_eq!(options.repeat, Some(Repeat::Forever));
        assert_eq!(options.style.form, ReplyForm::Csv);
        assert_eq!(options.command, [&b"SET"[..], b"-n", b"1"]);
    }

    #[test]
    fn the_first_mode_wins() {
        assert_eq!(run("--scan --bigkeys --stat").unwrap().mode, Some(Mode::BigKeys));
        assert_eq!(run("-h").unwrap().mode, Some(Mode::Help));
        assert_eq!(run("PING").unwrap().mode, None);
    }

    #[test]
    fn json_wants_version_3_unless_told_otherwise() {
        for (line, protocol) in [
            ("--json", ProtocolChoice::Resp3IfThere),
            ("--json -2", ProtocolChoice::Resp2),
            ("-2 --json", ProtocolChoice::Resp2),
            ("-3 --json", ProtocolChoice::Resp3),
        ] {
            assert_eq!(run(line).unwrap().protocol, protocol, "{line}");
        }
    }

    #[test]
    fn tls_wherever_it_is_asked_for() {
        for line in ["--tls", "-u rediss://host", "--tls -u redis://host", "-u valkeys://h --sni x"]
        {
            assert!(run(line).unwrap().target.tls, "{line}");
        }
        assert!(!run("--cacert file").unwrap().target.tls);
    }

    #[test]
    fn words_of_the_cluster_manager() {
        let line = "--cluster call h:1 config get port --cluster-only-primaries --cluster-weight \
                    a=1 b=2.5 --cluster-yes";
        let options = run(line).unwrap();
        assert_eq!(options.mode, Some(Mode::Cluster));
        let cluster = options.manager;
        assert_eq!(cluster.command, b"call");
        assert_eq!(cluster.arguments, [&b"h:1"[..], b"config", b"get", b"port"]);
        assert_eq!(cluster.weights, [("a".to_owned(), 1.0), ("b".to_owned(), 2.5)]);
        assert!(cluster.only_primaries && cluster.assume_yes && !cluster.only_replicas);
    }

    #[test]
    fn the_environment_says_what_no_option_says() {
        let environment = Environment { password: Some(b"there".to_vec()), assume_yes: true };
        let read = |line: &[&str]| {
            let arguments: Vec<_> = line.iter().map(|word| word.as_bytes().to_vec()).collect();
            try_parse(&arguments, &environment, false).unwrap()
        };
        let options = read(&["--cluster", "fix", "h:1"]);
        assert!(options.manager.assume_yes);
        assert_eq!(options.target.password.as_deref(), Some(&b"there"[..]));
        let options = read(&["-a", "here", "--no-auth-warning", "PING"]);
        assert_eq!(options.target.password.as_deref(), Some(&b"here"[..]));
        assert!(!run("--cluster fix h:1").unwrap().manager.assume_yes);
    }

    #[test]
    fn mistakes() {
        for (line, text) in [
            ("-p", "Unrecognized option or bad number of arguments for: '-p'"),
            ("--nonsense", "Unrecognized option or bad number of arguments for: '--nonsense'"),
            (
                "--hotkey",
                "Unrecognized option or bad number of arguments for: '--hotkey'\n\
                 Did you mean '--hotkeys'?",
            ),
            (
                "--port 7000",
                "Unrecognized option or bad number of arguments for: '--port'\n\
                 Did you mean '-p'?",
            ),
            ("-p 70000", "Invalid server port."),
            ("-t -1", "Invalid connection timeout for -t."),
            ("-x -X tag", "Options -x and -X are mutually exclusive."),
            ("-2 -3", "Options -2 and -3 are mutually exclusive."),
            ("-3 -2", "Options -2 and -3 are mutually exclusive."),
            ("-c -s /tmp/x", "Options -c and -s are mutually exclusive."),
            ("--ldb", "Options --ldb and --ldb-sync-mode require --eval."),
            ("--cluster", "Unrecognized option or bad number of arguments for: '--cluster'"),
            ("--cluster check h:1 --cluster fix h:1", "--cluster can be given once."),
            ("--cluster-weight a b", "--cluster-weight wants node=weight, one or several."),
            ("--cluster-weight a=x", "The weight of a node is a number from 0 on, not 'x'."),
            ("--cluster-slots 0", "--cluster-slots is a number from 1 to 16384."),
            (
                "--cluster info h:1 --cluster-yes more",
                "Unexpected argument behind the options of --cluster: 'more'",
            ),
            ("--sni", "Unrecognized option or bad number of arguments for: '--sni'"),
        ] {
            assert_eq!(run(line).err().as_deref(), Some(text), "{line}");
        }
    }
}
