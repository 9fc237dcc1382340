//! What is on disk: logs and snapshots, after crashes, on failing disks, of other servers.

mod aof;
mod damage;
mod disk;
mod disk_scripts;
mod dump;
mod foreign_logs;
mod kills;
mod logged_forms;
mod power;
mod round_trips;
mod slow_sync;
mod snapshot;
