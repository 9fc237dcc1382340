//! What concurrent clients see of each other: units, orders, messages.

mod causality;
mod groups;
mod history;
mod listeners;
mod promises;
mod pubsub;
mod queues;
mod scripts;
mod tracking;
mod units;
