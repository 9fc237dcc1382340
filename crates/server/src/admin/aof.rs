//! Commands about the log on disk: BGREWRITEAOF and WAITAOF.

use bobbin_resp::Reply;

use crate::engine::blocking::{self, Wait};
use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome};
use crate::engine::server::Server;
use crate::persistence::aof::{Aof, NO_LOG, rewrite};
use crate::replication::Replication;

fn bgrewriteaof(call: &mut Call<'_>) -> Outcome {
    let rewrites = &Aof::of(call.server).rewrites;
    // One that is given up will be gone in a moment.
    if rewrites.is_running() && !rewrites.is_given_up() {
        return Err("ERR Background append only file rewriting already in progress".into());
    }
    // What EXEC has not finished is in no base.
    if call.in_transaction || rewrite::cut_is_busy(call.server) {
        rewrites.schedule();
        call.reply.simple("Background append only file rewriting scheduled");
        return Ok(());
    }
    if !rewrite::begin_rewrite(call.server, call.data) {
        return Err(Failure::new(
            "ERR Can't execute an AOF background rewriting. Please check the server logs for more information.",
        ));
    }
    call.reply.simple("Background append only file rewriting started");
    Ok(())
}

/// WAITAOF numlocal numreplicas timeout.
fn waitaof(call: &mut Call<'_>) -> Outcome {
    if Replication::of(call.server).link().is_some() {
        return Err(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to \
             replicas are just local and are not propagated."
                .into(),
        );
    }
    let local = call.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, value must between 0 and 1".into());
    }
    let replicas = call.integer(2)?;
    if replicas < 0 {
        return Err("ERR value is out of range, must be positive".into());
    }
    let deadline_ms = blocking::deadline_of_ms(call, 3)?;
    let (server, number) = (call.server, call.client.last_record);
    if local > 0 && !server.config.appendonly() {
        return Err(NO_LOG);
    }
    let wait = WaitForDisk { server, number };
    if call.in_transaction || replicas == 0 && (local == 0 || wait.is_over()) {
        wait.append(&mut call.reply);
        return Ok(());
    }
    let waiter = blocking::block(call, wait, &[], deadline_ms);
    if replicas == 0 {
        Aof::of(server).await_record(server, number, waiter);
    }
    Ok(())
}

/// A client that waits until what it wrote is on disk.
struct WaitForDisk {
    server: &'static Server,
    number: u64,
}

impl WaitForDisk {
    fn is_over(&self) -> bool {
        Aof::of(self.server).kept().is_some_and(|kept| kept >= self.number)
    }

    fn append(&self, reply: &mut Reply<'_>) {
        let local = self.server.config.appendonly() && self.is_over();
        reply.array(2);
        reply.integer(i64::from(local));
        reply.integer(0);
    }
}

impl Wait for WaitForDisk {
    fn timed_out(&self, reply: &mut Reply<'_>) {
        self.append(reply);
    }
}

pub(super) const COMMANDS: &[Command] = &[
    Command::new("bgrewriteaof", 1, bgrewriteaof)
        .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::GATE))
        .doc("server", "1.0.0", "O(1)", "Begins to write the log on disk anew, and shorter."),
    Command::new("waitaof", 4, waitaof)
        .flags(Flags::BLOCKING)
        .categories(Categories::CONNECTION)
        .doc("generic", "7.2.0", "O(1)", "Waits until the writes before it are on disk.")
        .syntax("numlocal:int numreplicas:int timeout:int")
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
];
