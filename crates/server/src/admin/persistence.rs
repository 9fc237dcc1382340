//! SAVE, BGSAVE, LASTSAVE.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::blocking::{self, Wait};
use crate::engine::command::{Call, Command, Failure, Flags, Outcome};
use crate::persistence::aof::rewrite;
use crate::persistence::position::CutPosition;
use crate::persistence::{NotBegun, Persistence, points, save};

/// SAVE: only its client waits. Changes that other clients make meanwhile are not in the file, so
/// the client of another SAVE waits for the next one.
fn save(call: &mut Call<'_>) -> Outcome {
    if Persistence::of(call.server).saves_in_background() {
        return Err(BUSY);
    }
    let server = call.server;
    let waiter = blocking::block(call, Saving, &[], None);
    if rewrite::cut_is_busy(server) {
        points::save_later(server, waiter);
        return Ok(());
    }
    match save::start_save(server, call.data, Some(Arc::clone(&waiter))) {
        Ok(()) => {}
        Err(NotBegun::Busy) => waiter.answer(server, |_| Err(BUSY)),
        Err(NotBegun::NoThread) => {
            // SAVE needs no thread if no other client is served meanwhile.
            let position = CutPosition::of(server, call.data);
            let saved = save::save_held(server, call.data, position);
            waiter.answer(server, |reply| {
                saved.map_err(|_| Failure::new(&"ERR"))?;
                reply.ok();
                Ok(())
            });
        }
    }
    Ok(())
}

struct Saving;

impl Wait for Saving {
    fn can_be_unblocked(&self) -> bool {
        false
    }
}

fn bgsave(call: &mut Call<'_>) -> Outcome {
    let server = call.server;
    if call.args.len() > 1 {
        if call.args.len() == 2 && call.word_is(1, "cancel") {
            return cancel(call);
        }
        if call.args.len() > 2 || !call.word_is(1, "schedule") {
            return Err(Failure::SYNTAX);
        }
    }
    if call.in_transaction {
        // A snapshot must not hold half of a transaction.
        points::schedule_save(server);
        call.reply.simple("Background saving scheduled");
        return Ok(());
    }
    if rewrite::cut_is_busy(server) && !Persistence::of(server).is_saving() {
        if call.args.len() == 1 {
            return Err(REWRITING);
        }
        points::schedule_save(server);
        call.reply.simple("Background saving scheduled");
        return Ok(());
    }
    let persistence = Persistence::of(server);
    let begins_soon = !persistence.current_is_wanted() || !persistence.saves_in_background();
    if persistence.is_saving() && begins_soon {
        // The current save was aborted, and will be gone in a moment. Or it is a SAVE: had that
        // held up all clients, this command would come behind it.
        points::schedule_save(server);
    } else {
        save::start_save(server, call.data, None).map_err(|reason| match reason {
            NotBegun::Busy => BUSY,
            NotBegun::NoThread => Failure::new(&"ERR"),
        })?;
    }
    call.reply.simple("Background saving started");
    Ok(())
}

/// BGSAVE CANCEL: of the save that is going on, or else of the one to come.
fn cancel(call: &mut Call<'_>) -> Outcome {
    let done = if save::abort_save(call.server) {
        log::info!("Background saving will be aborted due to user request");
        "Background saving cancelled"
    } else if points::unschedule_save(call.server) {
        log::info!("Scheduled background saving will be cancelled due to user request");
        "Scheduled background saving cancelled"
    } else {
        return Err("ERR Background saving is currently not in progress or scheduled".into());
    };
    call.reply.simple(done);
    Ok(())
}

fn lastsave(call: &mut Call<'_>) -> Outcome {
    call.reply.integer(Persistence::of(call.server).last_save_s.load(Ordering::Relaxed));
    Ok(())
}

const BUSY: Failure = Failure::new(&"ERR Background save already in progress");
const REWRITING: Failure = Failure::new(
    &"ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a \
     BGSAVE whenever possible.",
);
const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("save", 1, save).flags(ADMIN.with(Flags::NO_MULTI).with(Flags::GATE)).doc(
        "server",
        "1.0.0",
        "O(N) where N is the total number of keys in all databases",
        "Saves a snapshot, and answers when it is on disk.",
    ),
    Command::new("bgsave", -1, bgsave)
        .flags(ADMIN.with(Flags::GATE))
        .doc("server", "1.0.0", "O(1)", "Begins to save a snapshot.")
        .syntax("[<SCHEDULE @3.2.2 | CANCEL @8.1.0>] :operation")
        .history(&[("3.2.2", "Takes `SCHEDULE`."), ("8.1.0", "Takes `CANCEL`.")]),
    Command::new("lastsave", 1, lastsave)
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .categories(
            crate::engine::command::Categories::ADMIN
                .with(crate::engine::command::Categories::DANGEROUS),
        )
        .doc(
            "server",
            "1.0.0",
            "O(1)",
            "Answers when the last snapshot was saved, in Unix seconds.",
        )
        .tips(&["nondeterministic_output"]),
];
