//! `bobbin-server`: reads the configuration, starts the server, and waits for signals.

use std::ffi::OsString;
use std::io::stdin;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;

use bobbin_io::error_text;
use bobbin_server::base::cores::{self, CoreShare, CoreWork};
use bobbin_server::base::memory;
use bobbin_server::config::{CommandLine, Config, Directives};
use bobbin_server::engine::acl;
use bobbin_server::engine::acl::rules::RuleGrammar;
use bobbin_server::engine::command::Registry;
use bobbin_server::engine::server::{Server, VERSION};
use bobbin_server::process::{
    self, check_aof, check_config, check_rdb, crash, shutdown, signals, start,
};
use bobbin_server::system::daemon::{self, StartReport};
use bobbin_server::system::{host, logging, title};

const USAGE: &str = "\
Usage: bobbin-server [CONFIGURATION FILE | -] [--OPTION VALUE ...]
       bobbin-server --check-config [CONFIGURATION FILE | -] [--OPTION VALUE ...]
       bobbin-server --check-rdb FILE
       bobbin-server --check-aof [--fix | --truncate-to-timestamp SECONDS] FILE
       bobbin-server --check-system
       bobbin-server --version | --help

The file is in the grammar of redis.conf; `-` reads it from the standard input. Every option of the
file can be given as `--option value`, and then wins over the file. `bobbin.conf` lists them all.
`--check-config` starts nothing, and shows all that is wrong with the configuration and the files and
addresses that it names; it takes no port and loads no data. `--check-system` shows what should be
changed on this machine.

Examples:
       bobbin-server
       bobbin-server /etc/bobbin/bobbin.conf
       bobbin-server --port 7000 --io-threads 4
       bobbin-server bobbin.conf --loglevel verbose --maxmemory 2gb
";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).map(OsString::into_vec).collect();
    match arguments.as_slice() {
        [only] if only == b"--version" || only == b"-v" => {
            println!("Bobbin server v={VERSION} malloc=jemalloc bits={}", usize::BITS);
            return ExitCode::SUCCESS;
        }
        [only] if only == b"--help" || only == b"-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [first, rest @ ..] if first == b"--check-config" => return show_faults(rest),
        [only] if only == b"--check-system" => return check_system(),
        [first, ..] if first == b"--test-memory" => {
            eprintln!(
                "bobbin-server does not test memory: use memtester while the system runs, or \
                 memtest86+ at boot."
            );
            return ExitCode::FAILURE;
        }
        [first, rest @ ..] if first == b"--check-rdb" => return check_rdb::main(rest),
        _ if is_named("check-rdb") => return check_rdb::main(&arguments),
        [first, rest @ ..] if first == b"--check-aof" => {
            return check_aof::main(rest, &mut stdin().lock());
        }
        _ if is_named("check-aof") => return check_aof::main(&arguments, &mut stdin().lock()),
        _ => {}
    }
    // SAFETY: no thread has been started yet, and the arguments were copied.
    unsafe { title::reserve() };
    logging::install();
    let mut named = Named::default();
    let line = CommandLine::parse(&arguments);
    let config = match Config::load(&line, &mut stdin().lock(), VERSION, &mut named) {
        Ok(config) => config,
        Err(error) => {
            error.print();
            return ExitCode::FAILURE;
        }
    };
    match run(config, &named) {
        Ok(code) => code,
        Err(error) => {
            log::warn!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Shows what is wrong with a configuration.
fn show_faults(arguments: &[Vec<u8>]) -> ExitCode {
    let line = CommandLine::parse(arguments);
    let mut named = Named::default();
    let (config, mut faults) = Config::check(&line, &mut stdin().lock(), VERSION, &mut named);
    faults.extend(check_config::faults(&config, &named.commands, &named.users));
    faults.iter().for_each(|fault| println!("{fault}"));
    match faults.len() {
        0 => println!("The configuration can be used."),
        1 => println!("1 problem"),
        count => println!("{count} problems"),
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Shows what should be changed on this machine.
fn check_system() -> ExitCode {
    let warnings = host::HostFiles::default().warnings(&Config::new(), false);
    warnings.iter().for_each(|warning| println!("{warning}"));
    if warnings.is_empty() {
        println!("Nothing should be changed on this machine.");
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

/// Whether the program was called by a name that ends so: a link may be named `redis-check-rdb`.
fn is_named(end: &str) -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    let name = name.as_ref().and_then(|path| path.file_name()?.to_str());
    name.is_some_and(|name| name.ends_with(end))
}

fn run(config: Config, named: &Named) -> Result<ExitCode, String> {
    let supervisor = host::Supervisor::find(config.supervised(), |name| std::env::var_os(name));
    let daemon = config.daemonize() && !supervisor.is_some();
    let mut report = None;
    if daemon {
        let begun = daemon::daemonize();
        report =
            Some(begun.map_err(|error| format!("Can't become a daemon: {}", error_text(&error)))?);
    }
    let outcome = serve(config, named, &supervisor, &mut report);
    if let (Err(error), Some(report)) = (&outcome, report) {
        report.fail(error);
    }
    outcome
}

/// Runs the server in this process. `report`: the process is a daemon, and another one waits for
/// this.
fn serve(
    config: Config,
    named: &Named,
    supervisor: &host::Supervisor,
    report: &mut Option<StartReport>,
) -> Result<ExitCode, String> {
    // All threads that are started from here on inherit this. No other thread should wait for the
    // end of their turns, whatever they do beside the workers. The same holds for the workers until
    // they know better.
    cores::share(CoreShare::ShortTurns);
    signals::ignore_file_size_signal();
    logging::configure(&config)
        .map_err(|error| format!("Can't open the log file: {}", error_text(&error)))?;
    cores::assign(config.core_lists());
    cores::go_to(CoreWork::Serving);
    memory::start_background_threads();
    let pid = std::process::id();
    log::info!("Bobbin {VERSION} starting, PID: {pid}, {}-bit", usize::BITS);
    if config.file().is_none() {
        log::warn!(
            "Warning: no config file specified, using the default config. In order to specify a \
             config file use bobbin-server /path/to/bobbin.conf"
        );
    } else {
        log::info!("Configuration loaded");
    }
    for line in config.passed_over() {
        log::warn!("{line}");
    }
    for warning in start::prepare_host(&config)? {
        log::warn!("{warning}");
    }
    title::show(&config);
    let server = process::create(config, &named.commands)?;
    server.load_users(&named.users)?;
    end_on_panic(server);
    crash::install(server).map_err(|error| format!("Can't prepare for crashes: {error}"))?;
    let mut pid_file = None;
    start::start(server, || {
        pid_file = host::PidFile::write(&server.config, report.is_some());
        if let Some(report) = report.take() {
            report.succeed();
        }
    })?;
    supervisor.ready();
    let code = shutdown::wait_for_end(server, supervisor)?;
    drop(pid_file);
    log::warn!("Bobbin is now ready to exit, bye bye...");
    Ok(code)
}

/// A panic of any thread ends the process, even where panics unwind. With `use-exit-on-panic` it
/// leaves as after any failure, so that a tool that measures the process can write down what it
/// saw.
fn end_on_panic(server: &'static Server) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        log::error!("{panic}");
        if server.config.use_exit_on_panic() {
            std::process::exit(1);
        }
        std::process::abort();
    }));
}

/// What the configuration says beside options.
#[derive(Default)]
struct Named {
    /// The `rename-command` lines.
    commands: Vec<(Vec<u8>, Vec<u8>)>,
    /// The `user` lines.
    users: Vec<Vec<Vec<u8>>>,
    /// To tell at once whether their rules are any.
    registry: Option<Registry>,
}

impl Directives for Named {
    fn rename_command(&mut self, from: &[u8], to: &[u8]) -> Result<(), String> {
        if !Registry::has(&process::families(), &self.commands, from) {
            return Err("No such command in rename-command".into());
        }
        self.commands.push((from.to_vec(), to.to_vec()));
        Ok(())
    }

    fn user(&mut self, words: &[&[u8]]) -> Result<(), String> {
        if self.users.iter().any(|known| known.first().is_some_and(|name| *name == words[0])) {
            let name = String::from_utf8_lossy(words[0]);
            return Err(format!(
                "Error in user declaration '{name}': Duplicate user found. A user can only be defined once in config \
                 files"
            ));
        }
        let registry = match &mut self.registry {
            Some(registry) => registry,
            none => none.insert(Registry::new(&process::families(), &[])?),
        };
        acl::file::read_user(
            words,
            0,
            &RuleGrammar { commands: registry.facts(), all_channels: false },
        )?;
        self.users.push(words.iter().map(|word| word.to_vec()).collect());
        Ok(())
    }
}
