//! MEMORY.

use crate::admin::info::{MemoryFigures, Snapshot, human};
use crate::base::allocator;
use crate::engine::command::{Call, Command, Failure, Flags, Outcome};
use crate::engine::row::keys::{KeySpec, KeyUse};

use crate::engine::command::help::{container, help_row};

/// MEMORY USAGE key [SAMPLES count]: the memory of the key's entry, and its share of the table and
/// of the expiry index. No samples are necessary, because every value knows its own size.
fn usage(call: &mut Call<'_>) -> Outcome {
    let mut at = 3;
    while at < call.args.len() {
        if !call.word_is(at, "samples") || at + 1 >= call.args.len() {
            return Err(Failure::SYNTAX);
        }
        if call.integer(at + 1)? < 0 {
            return Err(Failure::SYNTAX);
        }
        at += 2;
    }
    let key = call.key(2)?;
    let bytes = call.data.peek(key).map(|entry| {
        let expiry = if entry.expire_ms().is_some() { EXPIRY_BYTES } else { 0 };
        entry.memory() + SLOT_BYTES + expiry
    });
    match bytes {
        Some(bytes) => call.reply.integer(bytes as i64),
        None => call.reply.null(),
    }
    Ok(())
}

/// The value of a field of MEMORY STATS.
enum MemoryFigure {
    Bytes(i64),
    Ratio(f64),
    /// A database: the bytes of its tables and of its expiry indexes.
    Database(usize, usize),
}

fn stats(call: &mut Call<'_>) -> Outcome {
    let figures = collect(&Snapshot::new(call.server, call.data));
    call.reply.map(figures.len());
    for (name, figure) in &figures {
        call.reply.bulk(name.as_bytes());
        match *figure {
            MemoryFigure::Bytes(bytes) => call.reply.integer(bytes),
            MemoryFigure::Ratio(ratio) => call.reply.double(ratio),
            MemoryFigure::Database(tables, expiry) => {
                call.reply.map(2);
                call.reply.bulk(b"overhead.hashtable.main");
                call.reply.integer(tables as i64);
                call.reply.bulk(b"overhead.hashtable.expires");
                call.reply.integer(expiry as i64);
            }
        }
    }
    Ok(())
}

fn collect(snapshot: &Snapshot<'_>) -> Vec<(String, MemoryFigure)> {
    let memory = *snapshot.memory();
    let databases = &snapshot.keyspace().databases;
    let bytes = |bytes: usize| MemoryFigure::Bytes(bytes as i64);
    let percent =
        |part: usize, whole| MemoryFigure::Ratio(part as f64 * 100.0 / usize::max(whole, 1) as f64);
    let mut figures: Vec<(String, MemoryFigure)> = Vec::new();
    let mut add = |name: &str, figure| figures.push((name.to_owned(), figure));
    add("peak.allocated", bytes(memory.peak));
    add("total.allocated", bytes(memory.used));
    add("startup.allocated", bytes(memory.startup));
    add("replication.backlog", bytes(memory.backlog));
    add("replicas.repl.buffer", bytes(memory.gathered));
    add("clients.slaves", bytes(memory.unread));
    add("clients.normal", bytes(snapshot.clients().memory_bytes));
    add("cluster.links", bytes(0));
    add("cluster.slot_import", bytes(0));
    add("cluster.slot_export", bytes(0));
    add("aof.buffer", bytes(0));
    add("lua.caches", bytes(snapshot.server.scripts.memory()));
    add("functions.caches", bytes(snapshot.server.functions.memory()));
    let (mut keys, mut tables_bytes) = (0, 0);
    for (number, database) in databases.as_slice().iter().filter(|(_, d)| d.keys > 0) {
        add(
            &format!("db.{number}"),
            MemoryFigure::Database(database.table_bytes, database.expiry_bytes),
        );
        keys += database.keys;
        tables_bytes += database.table_bytes + database.expiry_bytes;
    }
    let per_key = memory.since_startup().checked_div(keys).unwrap_or(0);
    add("overhead.db.hashtable.lut", bytes(tables_bytes));
    add("overhead.db.hashtable.rehashing", bytes(0));
    add("overhead.total", bytes(memory.overhead));
    add("db.dict.rehashing.count", bytes(0));
    add("keys.count", bytes(keys));
    add("keys.bytes-per-key", bytes(per_key));
    add("dataset.bytes", bytes(memory.dataset()));
    add("dataset.percentage", percent(memory.dataset(), memory.since_startup()));
    add("peak.percentage", percent(memory.used, memory.peak));
    add("allocator.allocated", bytes(memory.allocator.allocated));
    add("allocator.active", bytes(memory.allocator.active));
    add("allocator.resident", bytes(memory.allocator.resident));
    add("allocator.muzzy", bytes(memory.allocator.muzzy));
    for (name, (ratio, difference)) in [
        ("allocator-fragmentation", memory.fragmentation()),
        ("allocator-rss", memory.allocator_rss()),
        ("rss-overhead", memory.rss_overhead()),
    ] {
        add(&format!("{name}.ratio"), MemoryFigure::Ratio(ratio));
        add(&format!("{name}.bytes"), MemoryFigure::Bytes(difference));
    }
    let (ratio, difference) = memory.total_overhead();
    // These are upstream's names, without `.ratio`.
    add("fragmentation", MemoryFigure::Ratio(ratio));
    add("fragmentation.bytes", MemoryFigure::Bytes(difference));
    figures
}

fn doctor(call: &mut Call<'_>) -> Outcome {
    let snapshot = Snapshot::new(call.server, call.data);
    let clients = snapshot.clients();
    let client_bytes = clients.memory_bytes / clients.connected.max(1);
    let report = report(snapshot.memory(), client_bytes);
    call.reply.verbatim("txt", report.as_bytes());
    Ok(())
}

/// The report of MEMORY DOCTOR. `client_bytes` is the average memory of a client.
fn report(memory: &MemoryFigures, client_bytes: usize) -> String {
    if memory.used < JUDGED_MIN_BYTES {
        return format!(
            "Only {} are in use: too little to judge by. Ask again when there is data.\n",
            human(memory.used as u64)
        );
    }
    let mut findings = Vec::new();
    if memory.peak as f64 / memory.used as f64 > 1.5 {
        findings.push(format!(
            "- Peak: {} were in use once, and {} are now. The process may keep pages of that time; \
             MEMORY PURGE gives back what is free.",
            human(memory.peak as u64),
            human(memory.used as u64)
        ));
    }
    let (ratio, bytes) = memory.fragmentation();
    if ratio > 1.1 && bytes > WORTH_SAYING_BYTES {
        findings.push(format!(
            "- Fragmentation: used pages are {:.0} % free, {} in all. It shrinks when values of like \
             sizes are written again; with \"activedefrag yes\" they are moved together.",
            (1.0 - 1.0 / ratio) * 100.0,
            human(bytes as u64)
        ));
    }
    let (ratio, bytes) = memory.allocator_rss();
    if ratio > 1.1 && bytes > WORTH_SAYING_BYTES {
        findings.push(format!(
            "- Allocator: it holds {} in pages without content. They go back with time, or by MEMORY \
             PURGE.",
            human(bytes as u64)
        ));
    }
    let (ratio, bytes) = memory.rss_overhead();
    if ratio > 1.1 && bytes > WORTH_SAYING_BYTES {
        findings.push(format!(
            "- Process: {} are resident outside the allocator: stacks, the program, the kernel's rings.",
            human(bytes as u64)
        ));
    }
    if client_bytes > CLIENT_LARGE_BYTES {
        findings.push(format!(
            "- Clients: each has {} on average, in buffers mostly. Some may read slowly: CLIENT LIST \
             shows which, client-output-buffer-limit and maxmemory-clients bound them.",
            human(client_bytes as u64)
        ));
    }
    if findings.is_empty() {
        return "Nothing about memory calls for action.\n".to_owned();
    }
    format!("About memory:\n\n{}\n", findings.join("\n"))
}

fn malloc_stats(call: &mut Call<'_>) -> Outcome {
    call.reply.verbatim("txt", allocator::report().as_bytes());
    Ok(())
}

fn purge(call: &mut Call<'_>) -> Outcome {
    if !allocator::purge() {
        return Err("ERR Error purging dirty pages".into());
    }
    call.reply.ok();
    Ok(())
}

/// A key's share of a table: a slot, and its part of the empty slots.
const SLOT_BYTES: usize = 16;
/// A key's share of an expiry index.
const EXPIRY_BYTES: usize = 8;
const JUDGED_MIN_BYTES: usize = 5 << 20;
const WORTH_SAYING_BYTES: i64 = 10 << 20;
const CLIENT_LARGE_BYTES: usize = 200 << 10;

const TIPS: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

pub(super) const COMMANDS: &[Command] = &[Command::new("memory", -2, container)
    .doc("server", "4.0.0", "Depends on subcommand.", "Holds the commands about memory.")
    .subcommands(&[
        Command::new("doctor", 2, doctor)
            .flags(Flags::WALKS)
            .doc("server", "4.0.0", "O(1)", "Reports in words how memory is used.")
            .tips(TIPS),
        help_row("server", "4.0.0"),
        Command::new("malloc-stats", 2, malloc_stats)
            .flags(Flags::LOADING)
            .doc(
                "server",
                "4.0.0",
                "Depends on how much memory is allocated, could be slow",
                "Answers the allocator's report.",
            )
            .tips(TIPS),
        Command::new("purge", 2, purge)
            .flags(Flags::LOADING)
            .doc(
                "server",
                "4.0.0",
                "Depends on how much memory is allocated, could be slow",
                "Gives unused memory back to the system.",
            )
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
        Command::new("stats", 2, stats)
            .flags(Flags::WALKS)
            .doc("server", "4.0.0", "O(1)", "Answers how much memory is used for what.")
            .tips(TIPS),
        Command::new("usage", -3, usage)
            .flags(Flags::READONLY)
            .keys(&[KeySpec::at(2, KeyUse::READ_ONLY)])
            .doc("server", "4.0.0", "O(N), N: samples", "Answers how much memory a key takes.")
            .syntax("key [SAMPLES count:int]"),
    ])];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doctor_says_what_there_is_to_say() {
        let mut memory = MemoryFigures { used: 1 << 20, peak: 1 << 20, ..Default::default() };
        assert!(report(&memory, 0).contains("too little"));
        memory.used = 100 << 20;
        memory.peak = 100 << 20;
        memory.allocator.allocated = 100 << 20;
        memory.allocator.active = 100 << 20;
        memory.allocator.resident = 100 << 20;
        memory.resident = 100 << 20;
        assert!(report(&memory, 0).contains("Nothing"));
        memory.peak = 200 << 20;
        memory.small_waste = 50 << 20;
        let text = report(&memory, 1 << 20);
        assert!(text.contains("Peak: 200.00M") && text.contains("33 % free, 50.00M in all"));
        assert!(text.contains("Clients: each has 1.00M") && !text.contains("Allocator:"));
    }
}
