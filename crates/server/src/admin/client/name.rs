//! CLIENT SETNAME and CLIENT SETINFO: the names of a client and of its library.

use crate::engine::client::name::{checked_name, is_plain, set_name};
use crate::engine::command::{Call, Failure, Outcome};

pub(super) fn getname(call: &mut Call<'_>) -> Outcome {
    let names = call.client.info.names();
    call.reply.bulk_or_null(Some(&*names.name).filter(|name| !name.is_empty()));
    Ok(())
}

pub(super) fn setname(call: &mut Call<'_>) -> Outcome {
    let name = checked_name(call.args[2])?;
    set_name(call, name);
    call.reply.ok();
    Ok(())
}

/// `CLIENT SETINFO LIB-NAME|LIB-VER value`.
pub(super) fn setinfo(call: &mut Call<'_>) -> Outcome {
    let (option, value) = (call.args[2], call.args[3]);
    let refused = || {
        let option = String::from_utf8_lossy(option);
        let text = format!("ERR {option} cannot contain spaces, newlines or special characters.");
        Err(Failure::format(text))
    };
    if call.word_is(2, "lib-name") {
        if !is_plain(value) {
            return refused();
        }
        call.client.info.names().library = value.into();
    } else if call.word_is(2, "lib-ver") {
        if !is_plain(value) {
            return refused();
        }
        call.client.info.names().library_version = value.into();
    } else {
        let option = String::from_utf8_lossy(option);
        return Err(Failure::format(format!("ERR Unrecognized option '{option}'")));
    }
    call.reply.ok();
    Ok(())
}
