//! `bobbin-server`.

use std::net::TcpListener;

use bobbin_server::config::Config;
use bobbin_server::server::Server;

fn main() {
    let config = Config::new();
    let server = Server::new(config).unwrap();
    let mut port = 6379;
    let mut threads = 1;
    let args: Vec<String> = std::env::args().collect();
    for pair in args[1..].chunks(2) {
        match pair[0].as_str() {
            "--port" => port = pair[1].parse().unwrap(),
            "--io-threads" => threads = pair[1].parse().unwrap(),
            _ => {}
        }
    }
    for id in 0..threads {
        server.start_worker(id).unwrap();
    }
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    println!("Ready to accept connections");
    for stream in listener.incoming().flatten() {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        let peer = stream.peer_addr().unwrap().to_string();
        let local = stream.local_addr().unwrap().to_string();
        server.adopt(stream.into(), peer, local, false);
    }
}
