//! Syntaxes, and the arguments that they become.

use super::*;

/// `name:kind`, with the token before it, and `?`, `*` and `*T` for what it may be.
fn shown(arguments: &[Argument]) -> String {
    let one = |argument: &Argument| {
        let token = argument.token.as_ref().map(|token| format!("{token} ")).unwrap_or_default();
        let mark = |on, mark| if on { mark } else { "" };
        let key = argument.key_spec.map(|spec| format!("#{spec}")).unwrap_or_default();
        let inner = match argument.arguments.is_empty() {
            true => String::new(),
            false => format!("({})", shown(&argument.arguments)),
        };
        let other = match argument.display == argument.name || argument.display.is_empty() {
            true => String::new(),
            false => format!("={}", argument.display),
        };
        let since = argument.since.as_ref().map(|since| format!("@{since}"));
        let until = argument.deprecated.as_ref().map(|until| format!("@..{until}"));
        format!(
            "{token}{}{other}:{}{key}{}{}{}{}{}{inner}",
            argument.name,
            argument.kind.name(),
            mark(argument.optional, "?"),
            mark(argument.multiple, "*"),
            mark(argument.multiple_token, "T"),
            since.unwrap_or_default(),
            until.unwrap_or_default(),
        )
    };
    arguments.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(syntax: &str, expected: &str) {
    assert_eq!(shown(&arguments(syntax, 2)), expected);
}

#[test]
fn values_and_tokens() {
    check("key value", "key:key#0, value:string");
    check("[message]", "message:string?");
    check(
        "key [LEN] [MINMATCHLEN min-match-len:int]",
        "key:key#0, LEN len:pure-token?, MINMATCHLEN min-match-len:integer?",
    );
    check(
        "source:key destination:key [DB destination-db:int]",
        "source:key#0, destination:key#1, DB destination-db:integer?",
    );
}

#[test]
fn types() {
    check(
        "key count:int score:double newkey:key glob:pattern at:time text",
        "key:key#0, count:integer, score:double, newkey:key#1, glob:pattern, at:unix-time, \
         text:string",
    );
    check("pattern key:string", "pattern:pattern, key:string");
    check("start:int end:int [start end ...]", "data:block*(start:integer, end:integer)");
    assert_eq!(plain("[X <a:int | b:key>] [a:int [a ...]]"), "[X <a | b>] [a [a ...]]");
}

#[test]
fn choices() {
    let order = "order:oneof?(ASC asc:pure-token, DESC desc:pure-token)";
    check("[<ASC | DESC>]", order);
    check("[ASC | DESC]", order);
    check("<BYTE | BIT>", "unit:oneof(BYTE byte:pure-token, BIT bit:pure-token)");
    check(
        "[EX seconds:int | PERSIST]",
        "expiration:oneof?(EX seconds:integer, PERSIST persist:pure-token)",
    );
    check("SKIPME <YES | NO>", "SKIPME skipme:oneof(YES yes:pure-token, NO no:pure-token)");
}

#[test]
fn blocks() {
    check("[LIMIT offset:int count:int]", "LIMIT limit:block?(offset:integer, count:integer)");
    check("[start:int end:int]", "start-block:block?(start:integer, end:integer)");
    check(
        "[COUNT count:int [ANY]]",
        "count-block:block?(COUNT count:integer, ANY any:pure-token?)",
    );
}

#[test]
fn repetition() {
    check("key [key ...]", "key:key#0*");
    check("key value [key value ...]", "data:block*(key:key#0, value:string)");
    check("[GET pattern [GET pattern ...]]", "GET pattern:pattern?*T");
    check("[ID client-id:int [client-id ...]] [X]", "ID client-id:integer?*, X x:pure-token?");
    check("numkeys:int key [key ...] [X]", "numkeys:integer, key:key#0*, X x:pure-token?");
    check("<A | B value> ...", "option:oneof*(A a:pure-token, B value:string)");
    check("STREAMS <key [key ...] id [id ...]>", "STREAMS streams:block(key:key#0*, id:string*)");
    check(
        "FIELDS numfields:int field [field ...]",
        "FIELDS fields:block(numfields:integer, field:string*)",
    );
}

#[test]
fn notes() {
    check("[count:int @6.2.0]", "count:integer?@6.2.0");
    check("key pattern :by-pattern #1", "key:key#0, by-pattern=pattern:pattern#1");
    check(
        "<A | B b> :where @1.0.0 [CH :change @2.0.0]",
        "where:oneof@1.0.0(A a:pure-token, B b:string), CH change:pure-token?@2.0.0",
    );
    check("[KEYS key [key ...] :keys @3.0.6]", "KEYS keys=key:key#0?*@3.0.6");
    check(
        "<ip:port:string :old-format @..2.8.12 | <X x @1.0.0> :new>",
        "option:oneof(old-format=ip:port:string@..2.8.12, X new=x:string@1.0.0)",
    );
    assert_eq!(
        plain("key :k [count:int @6.2.0] <a:b:string :c @..1.0.0 | [D #1]> :e"),
        "key [count] <a:b | [D]>"
    );
}

#[test]
fn every_row_has_a_well_formed_syntax() {
    let commands = crate::process::families().into_iter().flatten();
    for command in commands.flat_map(|one| std::iter::once(one).chain(one.subcommands)) {
        let row = &command.row;
        assert!(parse(row.syntax).is_some(), "{}: {}", row.name, row.syntax);
        let mut rest = arguments(row.syntax, row.keys.len());
        while let Some(argument) = rest.pop() {
            let is_found = argument.kind != ArgumentKind::Key || argument.key_spec.is_some();
            assert!(is_found, "{}: no key specification finds {argument:?}", row.name);
            rest.extend(argument.arguments);
        }
    }
}

#[test]
fn malformed() {
    for syntax in ["[a", "a]", "<a]", "a | b", "a:x", "a:", "a [b ...]", "[a ...]"] {
        assert_eq!(arguments(syntax, 0), [], "{syntax}");
    }
}
