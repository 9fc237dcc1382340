//! DEBUG PROTOCOL: a value of each type of the protocol, for authors of clients.

use bobbin_resp::Protocol;

use crate::engine::command::{Call, Failure, Outcome};

pub(super) fn reply(call: &mut Call<'_>) -> Outcome {
    let is_new = call.client.protocol == Protocol::Resp3;
    let reply = &mut call.reply;
    match &call.args[2].to_ascii_lowercase()[..] {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double_text(b"3.141"),
        b"bignum" => reply.big_number(b"1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|value| reply.integer(value));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|value| reply.integer(value));
        }
        b"map" => {
            reply.map(3);
            for value in 0..3 {
                reply.integer(value);
                reply.boolean(value == 1);
            }
        }
        b"attrib" => {
            if is_new {
                reply.raw(b"|1\r\n");
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if is_new => {
            reply.bulk(b"Some real reply following the push reply");
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
        }
        b"push" => return Err("ERR RESP2 is not supported by this command".into()),
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        _ => return Err(Failure::new(&UNKNOWN)),
    }
    Ok(())
}

const UNKNOWN: &str = "ERR Wrong protocol type name. Please use one of the following: string|integer|\
    double|bignum|null|array|set|map|attrib|push|verbatim|true|false";
