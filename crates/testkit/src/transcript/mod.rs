//! Transcripts: commands and the exact replies they get, in files one can read.
//!
//! A file holds sections; each starts on an empty server with new connections.
//!
//! ```text
//! # A comment.
//! == GETRANGE with negative ends
//! > SET k "a b\x00"
//! +OK
//! > GETRANGE k -2 -1
//! "b\x00"
//! ```
//!
//! | line | meaning |
//! |---|---|
//! | `== title` | starts a section |
//! | `> words` | a command as one types it in valkey-cli; `"x"*600` repeats a quoted word |
//! | `@raw "bytes"` | bytes as they are |
//! | `@read` | what else the current client gets |
//! | `@sleep 20` | milliseconds |
//! | `@client b` | the following lines are client b's (a section starts with client a) |
//! | `@close` | the current client closes its connection |
//!
//! For a whole section, before its first command: `@server valkey|redis|bobbin` (which server is
//! asked when recording; with `bobbin` the replies are written by hand), `@resp3` (clients start
//! with HELLO 3), `@needs LPUSH` (skipped on a server without that command), `@config name value`
//! (set before, restored after).
//!
//! For the next command: `@unordered` (arrays of scalars, sets and maps are sorted before they are
//! compared), `@bobbin reason` and `@peer reason` (only Bobbin, or only the peer, runs it).
//!
//! Replies have one line for each scalar and one for each aggregate that holds scalars only:
//! `"..."` is a bulk string, `*2 "a" $-1` an array, other types are as on the wire, elements of
//! nested aggregates are indented. The text is exact: two replies with the same text had the same
//! bytes. `<closed>` means that the server closed, `<nothing>` that it stayed silent.
//!
//! Where a peer was asked, Bobbin's name in errors counts as Valkey's.
//!
//! A reply line that starts with `@match ` is compared with masks: `<any>`, `<int>`, `<int 5..10>`
//! within a line, and `<rest>` alone for all further lines. Recording keeps such lines.

mod parse;
mod pattern;
mod render;
mod run;
mod text;

pub use parse::{Oracle, StepAction, Transcript, TranscriptSection, TranscriptStep};
pub use render::render;
pub use run::{Player, TranscriptMode, TranscriptOutcome};
pub use text::{escape, split_words};
