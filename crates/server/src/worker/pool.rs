//! The number of workers.

use std::sync::Arc;
use std::thread;

use bobbin_io::AnyDriver;

use super::Worker;
use crate::base::allocator;
use crate::engine::server::Server;

/// Makes `count` workers serve, and spreads the connections over them. Surplus workers give their
/// connections away, except those that listen, and end once they have none. Until then they can be
/// made to serve again.
pub fn set_worker_count(server: &'static Server, count: usize) -> Result<(), String> {
    let count = count.max(1);
    for _ in server.workers.want(count)..count {
        start_worker(server, server.workers.next_id())?;
    }
    allocator::give_back_in_steps();
    server.workers.rebalance();
    Ok(())
}

/// Starts one more worker. It is listed when this function returns.
fn start_worker(server: &'static Server, id: usize) -> Result<(), String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let run = move || {
        let worker =
            AnyDriver::new(server.driver).map_err(|error| error.to_string()).and_then(|driver| {
                Worker::new(server, id, driver).ok_or_else(|| "too many threads".to_owned())
            });
        match worker {
            Ok(worker) => {
                let handle = Arc::clone(worker.handle());
                server.workers.add(Arc::clone(&handle));
                // The thread that starts the worker waits for this message.
                drop(sender.send(Ok(())));
                worker.run();
                server.workers.ended(&handle);
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    };
    thread::Builder::new()
        .name(format!("bobbin-{id}"))
        .spawn(run)
        .map_err(|error| format!("Can't start worker {id}: {error}"))?;
    let started = receiver.recv().unwrap_or_else(|_| Err("it ended at once".into()));
    started.map_err(|error| format!("Can't start worker {id}: {error}"))
}
