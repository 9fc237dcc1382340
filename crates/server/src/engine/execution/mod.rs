//! From a parsed request to its reply: the checks in Redis's order, the locks, the handler; and
//! what is executed later, of transactions and long commands.

pub mod admission;
pub mod elsewhere;
pub mod execute;
pub mod monitor;
pub mod rights;
pub mod run;
pub mod slices;
pub mod transaction;
