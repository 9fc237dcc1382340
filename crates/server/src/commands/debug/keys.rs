//! DEBUG's looks at keys and tables, and POPULATE.

use bobbin_store::shard::Expire;
use bobbin_store::{NewValue, SHARDS};

use crate::command::{Call, Failure, Outcome};

/// DEBUG OBJECT key [fast].
pub(super) fn object(call: &mut Call<'_>) -> Outcome {
    let fast = call.args.len() > 3 && call.word_is(3, "fast");
    let (key, clock) = (call.key(2), call.data.clock);
    let entry = call.data.peek(key).ok_or(Failure::NO_SUCH_KEY)?;
    let mut text = format!(
        "Value at:{:p} refcount:1 encoding:{}",
        entry.bytes().as_ptr(),
        entry.encoding().name()
    );
    if !fast {
        let mut serialised = Vec::new();
        bobbin_dump::append_string(entry.bytes(), true, &mut serialised);
        text.push_str(&format!(" serializedlength:{}", serialised.len()));
    }
    let (lru, idle_s) = (clock.shown(entry.access()), clock.idle_seconds(entry.access()));
    text.push_str(&format!(" lru:{lru} lru_seconds_idle:{idle_s}"));
    call.reply.simple(text);
    Ok(())
}

/// DEBUG SDSLEN key: lengths, and what the blocks have beyond them.
pub(super) fn string_length(call: &mut Call<'_>) -> Outcome {
    let key = call.key(2);
    let entry = call.data.peek(key).ok_or(Failure::NO_SUCH_KEY)?;
    let (key_len, value_len) = (entry.key().len(), entry.bytes().len());
    let text = format!(
        "key_sds_len:{key_len} key_sds_avail:0 obj_alloc:{} val_sds_len:{value_len} \
         val_sds_avail:0 val_alloc:{value_len}",
        entry.memory()
    );
    call.reply.simple(text);
    Ok(())
}

/// DEBUG POPULATE count [prefix] [size]: keys that are there stay as they are.
pub(super) fn populate(call: &mut Call<'_>) -> Outcome {
    let positive = |call: &Call<'_>, index| {
        call.integer(index)
            .ok()
            .and_then(|value| usize::try_from(value).ok())
            .ok_or(Failure::new("ERR value is out of range, must be positive"))
    };
    let count = positive(call, 2)?;
    let prefix = call.args.get(3).copied().unwrap_or(b"key");
    let size = if call.args.len() > 4 { Some(positive(call, 4)?) } else { None };
    if size.is_some_and(|size| size as u64 > call.server.config.proto_max_bulk_len()) {
        return Err("ERR value is out of range, must be positive".into());
    }
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

/// DEBUG HTSTATS dbid [full]: a database's tables in all shards, as if they were one.
pub(super) fn table_statistics(call: &mut Call<'_>) -> Outcome {
    let number = call
        .integer(2)
        .ok()
        .filter(|number| (0..call.server.config.databases()).contains(number))
        .ok_or(Failure::new("ERR Out of range database"))?;
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

/// DEBUG HTSTATS-KEY key [full]: no value is a table.
pub(super) fn value_statistics(call: &mut Call<'_>) -> Outcome {
    let key = call.key(2);
    if !call.data.exists(key) {
        return Err(Failure::NO_SUCH_KEY);
    }
    Err("ERR The value stored at the specified key is not represented using an hash table".into())
}
