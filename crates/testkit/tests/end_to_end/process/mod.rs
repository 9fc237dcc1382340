//! The server as a process: its start, its threads, what it says of itself, its documents.

mod clients;
mod cores;
mod dashboard;
mod defrag;
mod docs;
mod documentation;
mod inside;
mod monitoring;
mod start;
