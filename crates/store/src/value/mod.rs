//! The values of keys that are more than a string: pure data structures, without clock, randomness
//! or configuration of their own.

pub mod integer;
pub mod listpack;

pub use listpack::{Item, Listpack};
