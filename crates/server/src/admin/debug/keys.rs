//! DEBUG's subcommands that read keys and tables, and POPULATE.

use bobbin_dump::rdb::Format;
use bobbin_store::shard::Expire;
use bobbin_store::value::List;
use bobbin_store::{AccessPolicy, Encoding, EntryRef, NewValue, SHARDS, ValueRef};

use super::any_key;
use crate::engine::command::{Call, Failure, Outcome};

/// DEBUG OBJECT key [fast]. Without `fast` the value is serialised, to show that length.
pub(super) fn object(call: &mut Call<'_>) -> Outcome {
    let fast = call.args.len() > 3 && call.word_is(3, "fast");
    let (key, clock) = (any_key(call, 2), call.data.conditions.clock);
    let list_max_listpack_size = call.server.config.list_max_listpack_size();
    let compress = call.server.config.rdbcompression();
    let entry = call.data.stored(key).ok_or(Failure::NO_SUCH_KEY)?;
    let mut text = format!(
        "Value at:{:p} refcount:1 encoding:{}",
        entry.key().as_ptr(),
        entry.encoding().name()
    );
    if !fast {
        text.push_str(&format!(" serializedlength:{}", serialised_len(entry, compress)));
    }
    let access = entry.access();
    text.push_str(&match clock.policy {
        AccessPolicy::Lru => {
            let (lru, idle_s) = (clock.used_second(access), clock.idle_seconds(access));
            format!(" lru:{lru} lru_seconds_idle:{idle_s}")
        }
        AccessPolicy::Lfu { .. } => {
            let (used, minute) = (clock.frequency(access), clock.used_minute(access));
            format!(" lfu_freq:{used} lfu_access_time_minutes:{minute}")
        }
    });
    if let Some(list) = entry.collection::<List>()
        && entry.encoding() == Encoding::Quicklist
    {
        let (nodes, bytes) = list.chunks().fold((0, 0), |(nodes, sum), (chunk, _)| {
            (nodes + 1, sum + chunk.len() + LISTPACK_OVERHEAD)
        });
        text.push_str(&format!(
            " ql_nodes:{nodes} ql_avg_node:{:.2} ql_listpack_max:{list_max_listpack_size} ql_compressed:0",
            list.len() as f64 / nodes as f64,
        ));
        if !fast {
            text.push_str(&format!(" ql_uncompressed_size:{bytes}"));
        }
    }
    call.reply.simple(text);
    Ok(())
}

/// The length of a value in a snapshot in bytes, without its type.
fn serialised_len(entry: EntryRef<'_>, compress: bool) -> usize {
    let mut bytes = Vec::new();
    match entry.value() {
        ValueRef::Collection(collection) => {
            bobbin_dump::append_collection_payload(
                collection,
                Format::Valkey,
                compress,
                &mut bytes,
            );
            bytes.len() - PAYLOAD_OVERHEAD
        }
        _ => {
            bobbin_dump::append_stored_string(entry.string(), compress, &mut bytes);
            bytes.len()
        }
    }
}

/// The bytes of Redis's packed form beside its entries.
const LISTPACK_OVERHEAD: usize = 7;
/// The type before a payload, and the version and the checksum behind it.
const PAYLOAD_OVERHEAD: usize = 1 + 2 + 8;

/// DEBUG SDSLEN key: the lengths of the key and the value, and the unused bytes of their blocks.
pub(super) fn string_length(call: &mut Call<'_>) -> Outcome {
    let key = any_key(call, 2);
    let entry = call.data.stored(key).ok_or(Failure::NO_SUCH_KEY)?;
    if !matches!(entry.encoding(), Encoding::Raw | Encoding::Embstr) {
        return Err("ERR Not an sds encoded string.".into());
    }
    let (key_len, value_len) = (entry.key().len(), entry.string().len());
    let text = format!(
        "key_sds_len:{key_len} key_sds_avail:0 obj_alloc:{} val_sds_len:{value_len} \
         val_sds_avail:0 val_alloc:{value_len}",
        entry.memory()
    );
    call.reply.simple(text);
    Ok(())
}

/// DEBUG POPULATE count [prefix] [size]. Existing keys stay as they are.
pub(super) fn populate(call: &mut Call<'_>) -> Outcome {
    let positive = |call: &Call<'_>, index| {
        call.integer(index)
            .ok()
            .and_then(|value| usize::try_from(value).ok())
            .ok_or(Failure::new(&"ERR value is out of range, must be positive"))
    };
    let count = positive(call, 2)?;
    let prefix = call.args.get(3).copied().unwrap_or(b"key");
    let size = if call.args.len() > 4 { Some(positive(call, 4)?) } else { None };
    if size.is_some_and(|size| size as u64 > call.server.config.proto_max_bulk_len()) {
        return Err("ERR value is out of range, must be positive".into());
    }
    super::refuse_while_loading(call)?;
    call.data.propagate_nothing();
    for number in 0..count {
        let name = [prefix, format!(":{number}").as_bytes()].concat();
        let key = call.data.key(&name);
        if call.data.exists(key) {
            continue;
        }
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = size.filter(|size| *size > 0) {
            value.resize(size, 0);
        }
        call.data.set(key, NewValue::string(&value), Expire::Clear);
    }
    call.reply.ok();
    Ok(())
}

/// DEBUG HTSTATS dbid [full]: a database's tables in all shards, shown as one table.
pub(super) fn table_statistics(call: &mut Call<'_>) -> Outcome {
    let number = call
        .integer(2)
        .ok()
        .filter(|number| (0..call.server.config.databases()).contains(number))
        .ok_or(Failure::new(&"ERR Out of range database"))?;
    let (mut slots, mut keys, mut volatile, mut shards) = (0, 0, 0, 0);
    for index in 0..SHARDS {
        call.data.visit(index, |shard| {
            let Some(database) = shard.database(number as u32) else { return };
            slots += database.table().memory() / size_of::<u64>();
            keys += database.len();
            volatile += database.volatile();
            shards += usize::from(!database.is_empty());
        });
    }
    let mut text = String::new();
    for (title, entries) in [("Dictionary", keys), ("Expires", volatile)] {
        text.push_str(&format!("[{title} HT]\n"));
        if entries == 0 {
            text.push_str("No stats available for empty dictionaries\n");
            continue;
        }
        text.push_str(&format!(
            "Hash table 0 stats (main hash table):\n table size: {slots}\n number of entries: \
             {entries}\n rehashing index: -1\n"
        ));
        if call.args.len() > 3 {
            let load = entries as f64 / slots.max(1) as f64;
            text.push_str(&format!(" shards in use: {shards}\n load: {load:.3}\n"));
        }
    }
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// DEBUG HTSTATS-KEY key [full]: for a set, a hash or a sorted set that is not packed.
pub(super) fn value_statistics(call: &mut Call<'_>) -> Outcome {
    let (key, full) = (any_key(call, 2), call.args.len() > 3 && call.word_is(3, "full"));
    let entry = call.data.peek(key).ok_or(Failure::NO_SUCH_KEY)?;
    let found = match (entry.value(), entry.encoding()) {
        (ValueRef::Collection(collection), Encoding::Hashtable | Encoding::Skiplist) => {
            Some((collection.len(), collection.free_effort()))
        }
        _ => None,
    };
    let Some((entries, blocks)) = found else {
        return Err(
            "ERR The value stored at the specified key is not represented using an hash table"
                .into(),
        );
    };
    // There are no slots, so show the blocks of entries instead.
    let mut text = format!(
        "Hash table 0 stats (main hash table):\n table size: {blocks}\n number of entries: {entries}\n \
         rehashing index: -1\n"
    );
    if full {
        text.push_str(&format!(
            " entries in a block: {:.3}\n",
            entries as f64 / blocks.max(1) as f64
        ));
    }
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}
