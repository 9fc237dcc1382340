//! The project's tasks: `cargo xtask test` and its parts.

mod advisories;
mod apps;
mod book;
mod chart;
mod clients;
mod compare;
mod cpu;
mod dist;
mod emulated;
mod end_to_end;
mod fuzz;
mod heavy;
mod image;
mod layers;
mod lines;
mod links;
mod memory;
mod names;
mod npm;
mod old_redis;
mod options;
mod pages;
mod peers;
mod pipeline;
mod probe;
mod proofs;
mod pubsub;
mod python;
mod races;
mod release_check;
mod replicas;
mod scaling;
mod shell;
mod snapshot;
mod spelling;
mod summary;
mod supply;
mod tidy;
mod transcripts;

use std::process::ExitCode;

use shell::TaskResult;
use summary::Summary;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test", options @ ..] => test(options),
        ["tidy"] => tidy::check(),
        ["tidy", "--graph"] => layers::show(),
        ["book"] => book::run(),
        ["pages"] => pages::run(),
        ["monitoring"] => monitoring(),
        ["supply"] => supply::check(None),
        ["supply", advisories] => supply::check(Some(advisories.as_ref())),
        ["peers"] => install_all(),
        ["dist", targets @ ..] => dist::run(targets),
        ["release-check", targets @ ..] => release_check::run(targets),
        ["end-to-end", names @ ..] => end_to_end::run(names),
        ["shuttle"] => proofs::shuttle(),
        ["instructions"] => proofs::instructions(),
        ["lines", options @ ..] => lines::run(options),
        ["scaling"] => scaling::write(),
        ["chart"] => chart::write(),
        ["miri"] => proofs::miri(),
        ["races", names @ ..] => races::run(names),
        ["apps", options @ ..] => apps::run(options),
        ["heavy", options @ ..] => heavy::run(options),
        ["memory", options @ ..] => memory::run(options),
        ["snapshot", options @ ..] => snapshot::run(options),
        ["pubsub", options @ ..] => pubsub::run(options),
        ["replicas", options @ ..] => replicas::run(options),
        ["cpu", options @ ..] => cpu::run(options),
        ["fuzz-smoke"] => fuzz::smoke(fuzz::SECONDS),
        ["fuzz-smoke", seconds] => fuzz::smoke(seconds),
        ["transcripts", "check", "--all", files @ ..] => {
            transcripts::check(files, true, usize::MAX)
        }
        ["transcripts", "check", files @ ..] => {
            transcripts::check(files, true, transcripts::DIFFERENCES_SHOWN)
        }
        ["compare", options @ ..] => compare::run(options),
        ["transcripts", "record", files @ ..] => transcripts::record(files),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that must pass before a change goes in. A step that fails does not keep the others
/// from running: one run shows all that is wrong.
fn test(options: &[&str]) -> TaskResult {
    let with_peers = match options {
        [] => true,
        ["--without-peers"] => false,
        _ => return Err(USAGE.to_owned()),
    };
    let mut summary = Summary::default();
    summary.step("tidy", tidy::check);
    summary.step("supply", || supply::check(None));
    summary.step("format", || cargo(&["fmt", "--all", "--check"]));
    // Beside the other builds: for much of its time it keeps one core busy, and so do they.
    let release = std::thread::spawn(proofs::build_instructions);
    summary.step("clippy", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
    });
    summary.step("fuzz targets compile", fuzz::check);
    if with_peers {
        summary.step("spelling", spelling::check);
        summary.step("install what the tests use", install_all);
    } else {
        summary.skip("spelling", "--without-peers");
        summary.skip("install what the tests use", "--without-peers");
    }
    summary.step("build the server and the tests", || {
        cargo(&["test", "--workspace", "--quiet", "--no-run"])
    });
    summary.step("build in release what counts instructions", || {
        release.join().unwrap_or_else(|_| Err("the build panicked".to_owned()))
    });
    summary.step("unit and model tests", || {
        cargo(&["test", "--workspace", "--quiet", "--no-fail-fast"])
    });
    summary.step("interleavings of lock, gate and inbox", proofs::shuttle);
    summary.step("instructions per command", proofs::instructions);
    match lines::install() {
        Ok(()) => summary.step("cache lines that move between threads", || lines::run(&[])),
        Err(error) => summary.skip("cache lines that move between threads", &error),
    }
    summary.step("transcripts", || {
        transcripts::check(&[], with_peers, transcripts::DIFFERENCES_SHOWN)
    });
    if with_peers {
        summary.step("beside Valkey", || {
            compare::run(&["walk", "options", "clients", "--commands", "2000"])
        });
        let mut unsteady = Vec::new();
        summary.step("end-to-end tests", || end_to_end::run_all().map(|names| unsteady = names));
        for name in unsteady {
            summary.note(&format!("UNSTEADY: {name} failed, and then succeeded twice: mend it"));
        }
        summary.step("BullMQ", || apps::BULLMQ.compare());
    } else {
        summary.skip("beside Valkey", "--without-peers");
        summary.skip("end-to-end tests", "--without-peers");
        summary.skip("BullMQ", "--without-peers");
    }
    summary.finish()
}

fn install_all() -> TaskResult {
    // One shows what is forced to disk, and delays that; a page has the other make certificates.
    for (program, version) in [("strace", "-V"), ("openssl", "version")] {
        if !shell::works(program, &[version]) {
            shell::install_packages(&[program])?;
        }
    }
    peers::install()?;
    old_redis::install()?;
    clients::install_python()?;
    clients::install_jedis()?;
    clients::build_go()?;
    apps::BULLMQ.install()
}

/// The tests of metrics, with the programs of Debian that read them.
fn monitoring() -> TaskResult {
    let program = "prometheus-redis-exporter";
    if !shell::works("prometheus", &["--version"]) || !shell::works(program, &["--version"]) {
        shell::install_packages(&["prometheus", program])?;
    }
    end_to_end::run(&["testkit/process/monitoring"])
}

fn cargo(arguments: &[&str]) -> TaskResult {
    shell::run(&mut shell::cargo(arguments))
}

const USAGE: &str = "\
usage: cargo xtask <task>
  test [--without-peers]        everything; installs what it uses
  tidy                          the rules no compiler checks
  tidy --graph                  which module of a crate imports which, for Mermaid
  supply [FOLDER]               sources, licences and versions of what others wrote; with a
                                checkout of RustSec's advisory-db, its warnings as well
  book                          the documentation as a site in target/book, with its links and
                                spelling checked; the first time it installs mdBook, in minutes
  pages                         the dashboard, a benchmark's page and the book in Chromium, which it
                                installs: both schemes, two widths, axe, keyboard; pictures of them
                                go to target/pages
  monitoring                    the tests of metrics, with Debian's Prometheus and its exporter for
                                Redis, which it installs
  end-to-end [NAME...]          the tests with servers, or those of files with such a name
  dist [TARGET...]              a Debian package and an archive of release programs, with their
                                checksums and a list of what is in them, for this machine or for
                                targets of Rust; wants cargo-deb, and for targets cargo-zigbuild
  release-check [TARGET...]     install, upgrade and purge that package in a clean Debian, build
                                and run the container image, and run the programs for another
                                architecture under QEMU; wants root
  apps [--rounds N] [NAME...]   workloads of applications and clients, here and on Valkey, with
                                equal outcomes: asynq bullmq (part of the tests) celery django
                                lettuce php redis-py redisson sidekiq
  shuttle                       lock, gate and inbox under many schedules
  instructions                  count those of a command, and compare with the limits
  lines [--server PATH] [--workers N] [--commands N] [--places N] [all|LOAD...]
                                count the cache lines that move between threads; without a load
                                compare with the limits
  scaling                       writes what docs/scaling.md models for many cores
  chart                         draws the README's chart from the tables of docs/performance.md
  miri                          the store under Miri; wants a nightly compiler
  races [NAME...]               the end-to-end tests with such names, or those with many threads,
                                with a server built with ThreadSanitizer; wants a nightly compiler
  fuzz-smoke [SECONDS]          every fuzz target for 10 seconds; wants a nightly compiler
                                and cargo-fuzz
  heavy [--members N] [--seconds N] [--rounds N] [--only NAME,NAME] [--server PATH] [--peer none]
                                GETs while heavy commands run, here and on Valkey
  pubsub [--server PATH] [--rounds N] [--seconds N]
                                messages delivered a second, here and on Valkey
  memory [--only WORDS] [--server PATH]
                                bytes per key of values of many shapes, here and on Valkey
  snapshot [--keys N] [--rate N] [--rounds N] [--server PATH]
                                what a snapshot and its loading cost, here and on Valkey
  replicas [--requests N] [--keys N] [--copies N] [--rounds N] [--server PATH]
                                what replicas cost a primary, here and on Valkey
  cpu [--server PATH] [--peer valkey|redis|PATH] [--rounds N] [COMMAND...]
                                what each of some 200 commands costs a server, here and on Valkey
  peers                         install what the tests use, and say where it is
  transcripts check [--all] [FILE...]
                                replay on the real servers and on Bobbin; with --all
                                show every difference
  transcripts record [FILE...]  take the replies of the real servers
  compare [walk|options|random|clients] [--seed N] [--commands N] [NAME...]
                                commands, options, INFO and replies to random commands beside
                                Valkey's; what differs and is not in tests/differences.txt fails";
