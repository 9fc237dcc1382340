//! A simulator of units: what clients do at random on several workers, and a crash at every record
//! of the log.
//!
//! `simulation/turns.rs` has workers take turns in one thread, so that a seed says all that
//! happens: what is in memory is compared after every turn with what a start would make of the log
//! until then. `simulation/threads.rs` has them work at once. `simulation/crash.rs` says what a log
//! has to be.
//!
//! `BOBBIN_UNITS=1000000 cargo test --profile quick -p bobbin-server --test units` runs as many
//! seeds as it says, from `BOBBIN_SEED` on (else from 0). A fault is told with the seed and all
//! that happened. `BOBBIN_SEED=17 BOBBIN_UNITS=1` has the same happen again, but for which shard a
//! key is in, and so which keys are evicted or expire first.

mod simulation;

use std::cell::RefCell;

use simulation::crash::LoggedHistory;
use simulation::turns::TurnStage;

/// Seeds of each way in the tests.
const TURNS: u64 = 100;
const THREADS: u64 = 6;

thread_local! {
    /// A process is never freed: one serves many seeds.
    static STAGE: RefCell<Option<TurnStage>> = const { RefCell::new(None) };
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = variable("BOBBIN_SEED").unwrap_or(0);
    first..first + variable("BOBBIN_UNITS").unwrap_or(count)
}

fn play(seed: u64) -> Vec<LoggedHistory> {
    // After a failure another one is needed.
    let mut stage = STAGE.take().unwrap_or_else(TurnStage::new);
    let histories = stage.play(seed).unwrap_or_else(|fault| panic!("BOBBIN_SEED={seed}: {fault}"));
    STAGE.replace(Some(stage));
    histories
}

fn check(history: &LoggedHistory) -> Result<(), String> {
    STAGE.with_borrow_mut(|stage| stage.as_mut().expect("it was played").check(history))
}

#[test]
fn a_crash_at_any_record_leaves_a_state_that_there_was() {
    let (mut records, mut whole) = (0, 0);
    for seed in seeds(TURNS) {
        for history in play(seed) {
            records += history.records.len();
            whole += history.states.len();
            check(&history).unwrap_or_else(|fault| panic!("BOBBIN_SEED={seed}: {fault}"));
        }
    }
    println!("{records} records; {whole} states between them");
}

#[test]
fn workers_that_are_at_it_at_once_tear_nothing() {
    let mut threads = simulation::threads::ThreadStage::new();
    for seed in seeds(THREADS) {
        threads.play(seed).unwrap_or_else(|fault| panic!("BOBBIN_SEED={seed}: {fault}"));
    }
}

/// The canaries: what a server that does it wrong would have logged.
#[test]
fn what_is_not_a_history_of_units_is_caught() {
    let mut caught = [0; 5];
    for seed in 0..20 {
        for history in play(seed) {
            check(&history).unwrap_or_else(|fault| panic!("BOBBIN_SEED={seed}: {fault}"));
            let faults = [
                history.torn(),
                history.with_a_record_missing(),
                history.with_two_records_exchanged(),
                history.with_a_later_base(),
                history.with_a_message_too_early(),
            ];
            for (caught, fault) in caught.iter_mut().zip(faults) {
                *caught += u32::from(fault.is_some_and(|history| check(&history).is_err()));
            }
        }
    }
    assert!(caught.iter().all(|&count| count > 3), "{caught:?}");
}
