use super::*;

struct Renames(Vec<(String, String)>);

impl Directives for Renames {
    fn user(&mut self, _: &[&[u8]]) -> Result<(), String> {
        Ok(())
    }

    fn rename_command(&mut self, from: &[u8], to: &[u8]) -> Result<(), String> {
        if from == b"nope" {
            return Err("No such command in rename-command".into());
        }
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.0.push((text(from), text(to)));
        Ok(())
    }
}

fn line(arguments: &[&str]) -> CommandLine {
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
    CommandLine::parse(&arguments)
}

fn options(arguments: &[&str]) -> String {
    String::from_utf8(line(arguments).options).unwrap()
}

fn load(text: &str) -> Result<Config, LoadError> {
    let line = CommandLine { from_stdin: true, ..CommandLine::default() };
    Config::load(&line, &mut text.as_bytes(), "9.1.2", &mut Renames(Vec::new()))
}

#[test]
fn addresses_are_counted_as_they_are_written_again() {
    let words = |count: usize| ["a"; 16].repeat(2)[..count].join(" ");
    for count in [1, 16] {
        let config = load(&format!("bind \"{}\"", words(count))).expect("they are few enough");
        let again = config.rewritten(b"", &[], false);
        assert!(load(std::str::from_utf8(&again).expect("it is text")).is_ok());
    }
    assert!(load(&format!("bind \"{}\"", words(17))).is_err());
}

fn load_arguments(arguments: &[&str]) -> Result<Config, LoadError> {
    Config::load(&line(arguments), &mut &b""[..], "9.1.2", &mut Renames(Vec::new()))
}

/// Makes a new folder with these files.
fn folder(files: &[(&str, &str)]) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("bobbin-load-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    for (name, text) in files {
        std::fs::write(path.join(name), text.replace("HERE", path.to_str().unwrap())).unwrap();
    }
    path
}

#[test]
fn reads_the_command_line_as_valkey_does() {
    assert_eq!(line(&["a.conf"]).file, Some(PathBuf::from("a.conf")));
    assert_eq!(line(&["--port", "1"]).file, None);
    assert_eq!(
        options(&["x", "--port", "7000", "--bind", "a", "b"]),
        "port \"7000\" \nbind \"a\" \"b\" "
    );
    assert_eq!(options(&["--port 1", "--timeout", "2"]), "port 1 \ntimeout \"2\" ");
    assert_eq!(options(&["--save", "", "--port", "1"]), "save \"\" \nport \"1\" ");
    assert_eq!(options(&["--save", "--port", "1"]), "save \"\"\nport \"1\" ");
    assert_eq!(options(&["--save"]), "save \"\"");
    assert_eq!(options(&["--requirepass", "--x"]), "requirepass \"--x\" ");
    assert!(line(&["-", "--port", "1"]).from_stdin && line(&["x", "-"]).from_stdin);
    assert_eq!(options(&["--a", "-", "--b", "1"]), "a \"-\" \nb \"1\" ");
}

#[test]
fn reads_lines_quotes_and_comments() {
    let config = load(
        "# comment\n\n  PORT\t7000 \r\nrequirepass \"a \\x41\\\"\"\nmaxmemory 1gb\nbind '127.0.0.1' ::1\n\
         slave-priority 7\nclient-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit pubsub 4 5 6\n\
         shutdown-on-sigint \"nosave now\"\nio-threads-do-reads yes\n\
         user default on nopass sanitize-payload ~* &* +@all\nlua-replicate-commands yes\n",
    )
    .unwrap();
    assert_eq!(config.port(), 7000);
    assert_eq!(&*config.requirepass(), b"a A\"");
    assert_eq!(config.maxmemory(), 1 << 30);
    assert_eq!(config.words_of(OptionId::bind), ["127.0.0.1", "::1"]);
    assert_eq!(config.replica_priority(), 7);
    assert!(config.shutdown_on_sigint().now() && config.shutdown_on_sigint().nosave());
    assert_eq!(
        &*config.client_output_buffer_limit(),
        b"normal 1 2 3 slave 268435456 67108864 60 pubsub 4 5 6"
    );
}

#[test]
fn later_sources_win_and_save_can_be_empty() {
    let path = folder(&[("a.conf", "port 1\ntimeout 5\n")]);
    let file = path.join("a.conf");
    let config =
        load_arguments(&[file.to_str().unwrap(), "--port", "2", "--save", "", "--timeout 7"])
            .unwrap();
    assert_eq!((config.port(), config.timeout()), (2, 7));
    assert_eq!(config.file().unwrap().as_ref(), file);
    std::fs::remove_dir_all(path).unwrap();
}

/// Each expected text was printed by valkey-server 9.1.2.
#[test]
fn reports_the_line_with_valkeys_texts() {
    for (text, reason) in [
        ("gopher-enabled no", "Bad directive or wrong number of arguments"),
        ("maxmemory", "wrong number of arguments"),
        ("port 1 2", "wrong number of arguments"),
        ("port x", "argument couldn't be parsed into an integer"),
        ("maxmemory 1gb\" x", "Unbalanced quotes in configuration line"),
        ("PORT \"70000\"", "argument must be between 0 and 65535 inclusive"),
        ("save 1", "Invalid save parameters"),
        ("save \"1 2 3\"", "Invalid save parameters"),
        ("sentinel monitor a", SENTINEL),
        ("include", "Bad directive or wrong number of arguments"),
        ("rename-command nope bar", "No such command in rename-command"),
        ("rename-command ping", "Bad directive or wrong number of arguments"),
        ("a.b", "Module config specified without value"),
        ("user", "Bad directive or wrong number of arguments"),
        ("loadmodule", "Bad directive or wrong number of arguments"),
        ("appendonly maybe", "argument must be 'yes' or 'no'"),
        ("dir /nope/x", "No such file or directory"),
        (
            "shutdown-on-sigterm",
            "argument(s) must be one of the following: default, save, nosave, now, force, safe, failover",
        ),
        ("unixsocketperm 999", "argument couldn't be parsed as an octal number"),
        ("unixsocketperm 7777", "argument must be between 0 and 777 inclusive"),
        (
            "client-output-buffer-limit normal 1 2",
            "Wrong number of arguments in buffer limit configuration.",
        ),
        ("oom-score-adj-values 1 2", "wrong number of arguments"),
        ("dbfilename a/b", "dbfilename can't be a path, just a filename"),
        ("dbfilename \"a\\x00\"", "dbfilename can't contain a zero byte"),
        ("hz -1", "argument must be between 0 and 2147483647 inclusive"),
        ("enable-debug-command maybe", "argument(s) must be one of the following: no, yes, local"),
        // This text is Bobbin's own.
        (
            "rdma-port 1",
            "'rdma-port 1' is not supported by this version of Bobbin\nWith \
             'unsupported-directives warn' it is passed over",
        ),
    ] {
        let expected = format!(
            "\n*** FATAL CONFIG FILE ERROR (Version 9.1.2) ***\n\
             Reading the configuration file, at line 2\n>>> '{text}'\n{reason}\n"
        );
        let error = load(&format!("timeout 1\n  {text} \t\nport 1")).map(|_| ()).unwrap_err();
        assert_eq!(error, LoadError::Fatal(expected));
    }
    let error = load("logfile /no/such/file").map(|_| ()).unwrap_err();
    assert_eq!(
        error,
        LoadError::Fatal(
            "\n*** FATAL CONFIG FILE ERROR (Version 9.1.2) ***\n\
             Can't open the log file: /no/such/file: No such file or directory\n"
                .into()
        )
    );
}

/// These values would read back as other words: the server would then begin as a primary.
#[test]
fn a_primary_has_a_name_of_one_word() {
    for text in ["replicaof \"a b\" 1", "replicaof \"\" 1"] {
        let error = load(text).map(|_| ()).unwrap_err();
        let LoadError::Fatal(report) = error else { panic!("{error:?}") };
        assert!(report.contains("Invalid primary host"), "{report}");
    }
    assert_eq!(load("replicaof a 1").unwrap().words_of(OptionId::replicaof), ["a", "1"]);
}

#[test]
fn a_word_that_is_nearly_known_is_suggested() {
    for (text, meant) in [
        ("maxmemroy 1gb", Some("maxmemory")),
        ("APPEND-ONLY yes", Some("appendonly")),
        ("replicaoff a 1", Some("replicaof")),
        ("rename-comand a b", Some("rename-command")),
        ("gopher-enabled no", None),
        ("prot 1", Some("port")),
    ] {
        let error = load(text).map(|_| ()).unwrap_err();
        let LoadError::Fatal(report) = error else { panic!("{error:?}") };
        let meant = meant.map_or_else(String::new, |name| format!("Did you mean '{name}'?\n"));
        let reason = "Bad directive or wrong number of arguments";
        assert!(report.ends_with(&format!(">>> '{text}'\n{reason}\n{meant}")), "{report}");
    }
}

#[test]
fn a_fault_of_the_command_line_is_called_one() {
    let path = folder(&[("a.conf", "port 1\n")]);
    let file = path.join("a.conf");
    let error = load_arguments(&[file.to_str().unwrap(), "--port", "x"]).map(|_| ()).unwrap_err();
    assert_eq!(
        error,
        LoadError::Fatal(
            "\n*** FATAL CONFIG FILE ERROR (Version 9.1.2) ***\n\
             Reading the command line\n>>> 'port \"x\"'\n\
             argument couldn't be parsed into an integer\n"
                .into()
        )
    );
    std::fs::remove_dir_all(path).unwrap();
}

/// Other programs have options of one letter.
#[test]
fn an_option_with_one_dash_is_told_how_options_are_given() {
    let error = load_arguments(&["-p", "7000"]).map(|_| ()).unwrap_err();
    let LoadError::Fatal(report) = error else { panic!("{error:?}") };
    assert!(report.contains("Options are given as '--name value'"), "{report}");
}

#[test]
fn a_check_shows_all_that_is_wrong() {
    let path = folder(&[
        ("main.conf", "port x\ntimeout 5\ninclude HERE/more.conf\nlogfile HERE/none/log\n"),
        ("more.conf", "\nmaxmemroy 10mb\ninclude HERE/missing.conf\n"),
        ("good.conf", "port 1\nlogfile HERE/new.log\n"),
    ]);
    let check = |arguments: &[&str]| {
        let mut renames = Renames(Vec::new());
        Config::check(&line(arguments), &mut &b""[..], "9.1.2", &mut renames).1
    };
    let file = |name: &str| path.join(name).to_str().unwrap().to_owned();
    let (main, more) = (file("main.conf"), file("more.conf"));
    let faults = check(&[&main, "--appendonly", "maybe"]);
    let expected = [
        format!("{main}:1: 'port x': argument couldn't be parsed into an integer"),
        format!(
            "{more}:2: 'maxmemroy 10mb': Bad directive or wrong number of arguments. Did \
             you mean 'maxmemory'?"
        ),
        format!(
            "{more}:3: 'include {0}': Fatal error, can't open config file '{0}': No such file \
             or directory",
            file("missing.conf")
        ),
        "command line: 'appendonly \"maybe\"': argument must be 'yes' or 'no'".to_owned(),
        format!(
            "logfile: Can't open the log file: {}: No such file or directory",
            file("none/log")
        ),
    ];
    assert_eq!(faults, expected);
    assert_eq!(check(&[&file("good.conf")]), [""; 0]);
    assert!(!path.join("new.log").exists(), "a check makes nothing");
    std::fs::remove_dir_all(path).unwrap();
}

/// A directive that is not supported is an error. With `unsupported-directives warn`, wherever that
/// line is, it is skipped, unless data would be lost or access be given because of that.
#[test]
fn what_cannot_be_followed_is_passed_over_where_that_is_wanted() {
    let text = "rdma-port 1\nserver-threads 4\nsearch.timeout 5\nport 7\n";
    let path = folder(&[("redis.conf", text), ("bad.conf", "loadmodule /x.so\nmaxmemroy 1\n")]);
    let file = |name: &str| path.join(name).to_str().unwrap().to_owned();
    let (good, bad) = (file("redis.conf"), file("bad.conf"));
    let warn = ["--unsupported-directives", "warn"];
    let check = |arguments: &[&str]| {
        Config::check(&line(arguments), &mut &b""[..], "1", &mut Renames(Vec::new())).1
    };
    let faults = check(&[&good]);
    assert_eq!(faults.len(), 3, "{faults:?}");
    let hint = "it is KeyDB's; io-threads says it here. With 'unsupported-directives warn' it is \
                passed over";
    assert!(faults[1].ends_with(hint), "{faults:?}");
    let error = load_arguments(&[&good]).map(|_| ()).unwrap_err();
    assert!(matches!(&error, LoadError::Fatal(text) if text.contains("at line 1\n>>> 'rdma")));
    assert_eq!(check(&[&good, warn[0], warn[1]]), [""; 0]);
    let config = load_arguments(&[&good, warn[0], warn[1]]).unwrap();
    assert_eq!((config.port(), config.rdma_port()), (7, 0));
    let passed_over = config.passed_over();
    assert_eq!(passed_over.len(), 3);
    let first = format!("{good}:1: 'rdma-port 1' is passed over: 'rdma-port 1' is not ");
    assert!(passed_over[0].starts_with(&first), "{passed_over:?}");
    assert_eq!(check(&[&bad, warn[0], warn[1]]).len(), 2);
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn includes_files_and_patterns() {
    let path = folder(&[
        ("main.conf", "include HERE/conf.d-*\ninclude HERE/none-*\nport 3"),
        ("conf.d-2", "timeout 2\n"),
        ("conf.d-1", "timeout 1\nport 9\nrename-command get \"\"\n"),
    ]);
    let file = path.join("main.conf");
    let mut renames = Renames(Vec::new());
    let config =
        Config::load(&line(&[file.to_str().unwrap()]), &mut &b""[..], "1", &mut renames).unwrap();
    assert_eq!((config.timeout(), config.port()), (2, 3));
    assert_eq!(renames.0, [("get".to_owned(), String::new())]);

    let missing = path.join("missing.conf");
    assert_eq!(
        load_arguments(&[missing.to_str().unwrap()]).map(|_| ()).unwrap_err(),
        LoadError::Unreadable(format!(
            "Fatal error, can't open config file '{}': No such file or directory",
            missing.display()
        ))
    );
    std::fs::remove_dir_all(path).unwrap();
}

/// The files of a pattern are read one after the other: their number does not count as depth, and
/// one of them may include another.
#[test]
fn files_of_a_pattern_are_read_one_after_the_other() {
    let names: Vec<String> = (1..=20).map(|number| format!("conf.d-{number:02}")).collect();
    let texts = ["include HERE/conf.d-02", "timeout 2", "include HERE/other"];
    let texts = texts.into_iter().chain(std::iter::repeat("port 3"));
    let mut files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts).collect();
    files.extend([("main.conf", "include HERE/conf.d-*"), ("other", "port 4")]);
    let path = folder(&files);
    let config = load_arguments(&[path.join("main.conf").to_str().unwrap()]);
    let config = config.map_err(|error| format!("{error:?}")).unwrap();
    assert_eq!((config.timeout(), config.port()), (2, 3));
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn includes_end() {
    let path = folder(&[("a.conf", "include HERE/b.conf"), ("b.conf", "include HERE/a.conf")]);
    let file = path.join("a.conf");
    let error = load_arguments(&[file.to_str().unwrap()]).map(|_| ()).unwrap_err();
    let LoadError::Fatal(text) = error else { panic!("{error:?}") };
    assert!(text.ends_with("a.conf': it is being read already\n"), "{text}");
    let check =
        |file| Config::check(&line(&[file]), &mut &b""[..], "9.1.2", &mut Renames(Vec::new())).1;
    let faults = check(file.to_str().unwrap());
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert!(fault.contains("b.conf:1: 'include ") && fault.ends_with("read already"), "{fault}");

    let names: Vec<String> = (0..=20).map(|number| format!("{number}.conf")).collect();
    let texts: Vec<String> = (1..=21).map(|number| format!("include HERE/{number}.conf")).collect();
    let files: Vec<(&str, &str)> =
        names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    let deep = folder(&files);
    let file = deep.join("0.conf");
    let error = load_arguments(&[file.to_str().unwrap()]).map(|_| ()).unwrap_err();
    let LoadError::Fatal(text) = error else { panic!("{error:?}") };
    assert!(text.ends_with("16.conf': files include too deeply\n"), "{text}");
    std::fs::remove_dir_all(path).unwrap();
    std::fs::remove_dir_all(deep).unwrap();
}
