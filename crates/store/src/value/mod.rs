//! The values of keys that are more than a string: pure data structures, without clock, randomness
//! or configuration of their own.

mod block;
pub mod integer;
pub mod intset;
pub mod listpack;

pub use intset::Intset;
pub use listpack::{Item, Listpack};
