//! A session with a server: the connection, and what must be known of its state to show replies and
//! a prompt.

mod execute;
mod pager;
mod redirect;
mod replica;
pub mod replication;
mod subscribed;
mod verbatim;

use std::{io, os::fd::AsFd, time::Duration};

use bobbin_client::{ClientError, RespClient, ServerAddress, Target, Transport, Value, error_text};
use bobbin_resp::Protocol;
use rustix::net::sockopt;

use crate::options::{Options, ProtocolChoice};

pub use execute::Pushes;
use redirect::Redirection;
pub use replica::attach_by_command;
use subscribed::SubscribedMode;

pub struct Session {
    pub options: Options,
    /// Where the next connection goes to. A redirection of a cluster changes it.
    pub address: ServerAddress,
    client: Option<RespClient>,
    /// Whether a shell reads the replies: then a lost connection is no reason to end.
    pub interactive: bool,
    /// Whether replies that are longer than the screen go to a pager.
    pub pages: bool,
    /// For how long pagers have been shown, all together.
    pub paged: Duration,
    /// The database that is selected, and the one to select on a new connection.
    database: u32,
    wanted_database: u32,
    protocol: Protocol,
    /// Inside MULTI: the database that was selected before.
    transaction: Option<u32>,
    subscribed: SubscribedMode,
    /// SHUTDOWN has been sent: the connection may end without a reply.
    shutting_down: bool,
    redirection: Option<Redirection>,
}

/// A command got no reply. The user has already been told why.
#[derive(Debug)]
pub struct Lost;

impl Session {
    pub fn new(options: Options) -> Self {
        Self {
            address: options.target.address.clone(),
            client: None,
            interactive: false,
            pages: false,
            paged: Duration::ZERO,
            database: 0,
            wanted_database: options.target.database.unwrap_or(0),
            protocol: Protocol::Resp2,
            transaction: None,
            subscribed: SubscribedMode::default(),
            shutting_down: false,
            redirection: None,
            options,
        }
    }

    /// Connects anew and says what went wrong, if so. A refused password leaves a connection.
    pub fn connect(&mut self) -> Result<(), Lost> {
        self.disconnect();
        match self.open() {
            Ok(client) => self.client = Some(client),
            Err(error) => {
                complain!("Could not connect to {}: {}", self.address, error_text(&error));
                return Err(Lost);
            }
        }
        self.greet().map_err(|error| {
            complain!("{error}");
            Lost
        })
    }

    /// Connects, or ends the program: what the modes begin with.
    pub fn connect_or_exit(&mut self) -> &mut RespClient {
        if self.connect().is_err() {
            std::process::exit(1);
        }
        self.client.as_mut().expect("connect() left a connection")
    }

    /// Connects, but prints nothing about a failure.
    pub fn connect_quietly(&mut self) -> Option<&mut RespClient> {
        self.disconnect();
        self.client = Some(self.open().ok()?);
        self.greet().ok()?;
        self.client.as_mut()
    }

    pub fn client(&mut self) -> Option<&mut RespClient> {
        self.client.as_mut()
    }

    pub fn disconnect(&mut self) {
        self.client = None;
        self.database = 0;
        self.transaction = None;
        self.subscribed = SubscribedMode::default();
        self.shutting_down = false;
        self.protocol = Protocol::Resp2;
    }

    pub fn is_connected(&self) -> bool {
        self.client.is_some()
    }

    pub fn is_subscribed(&self) -> bool {
        self.subscribed.is_on()
    }

    /// Whether commands are queued for a transaction.
    pub fn is_queueing(&self) -> bool {
        self.transaction.is_some()
    }

    /// `127.0.0.1:6379[1](TX)> `, or that there is no connection.
    pub fn prompt(&self) -> String {
        if self.client.is_none() {
            return "not connected> ".to_owned();
        }
        let mut prompt = match &self.address {
            ServerAddress::Unix(path) => format!("bobbin {}", path.display()),
            tcp @ ServerAddress::Tcp { .. } => tcp.to_string(),
        };
        if self.database != 0 {
            prompt.push_str(&format!("[{}]", self.database));
        }
        if self.transaction.is_some() {
            prompt.push_str("(TX)");
        }
        if self.is_subscribed() {
            prompt.push_str("(subscribed mode)");
        }
        prompt.push_str("> ");
        prompt
    }

    /// Where another connection has to go to be where this one is.
    pub fn place(&self) -> (Target, Transport) {
        let mut target = self.options.target.clone();
        target.address = self.address.clone();
        target.database = Some(self.database).filter(|number| *number != 0);
        (target, self.options.transport.clone())
    }

    fn open(&self) -> io::Result<RespClient> {
        let client = RespClient::connect_to(&self.address, &self.options.transport)?;
        if matches!(self.address, ServerAddress::Tcp { .. }) {
            keep_alive(&client)?;
        }
        Ok(client)
    }

    /// Says who we are, and what database and protocol we want.
    fn greet(&mut self) -> Result<(), String> {
        let Target { user, password, .. } = self.options.target.clone();
        if let Some(password) = password {
            let words: Vec<Vec<u8>> = match user {
                Some(user) => vec![b"AUTH".to_vec(), user, password],
                None => vec![b"AUTH".to_vec(), password],
            };
            self.demand("AUTH", |client| client.command(&words))?;
        }
        if self.wanted_database != self.database {
            let number = self.wanted_database.to_string();
            let name = format!("SELECT {number}");
            self.demand(&name, |client| client.command(&["SELECT", &number]))?;
            self.database = self.wanted_database;
        }
        let wanted = self.options.protocol;
        if matches!(wanted, ProtocolChoice::Resp3 | ProtocolChoice::Resp3IfThere) {
            match self.demand("HELLO 3", |client| client.hello(Protocol::Resp3)) {
                Ok(_) => self.protocol = Protocol::Resp3,
                Err(error) if wanted == ProtocolChoice::Resp3 || !self.is_connected() => {
                    return Err(error);
                }
                Err(error) => complain!("{error}"),
            }
        }
        Ok(())
    }

    /// Selects the wanted database again, after AUTH made it possible.
    fn select_wanted(&mut self) {
        let wanted = self.wanted_database;
        if wanted == self.database {
            return;
        }
        match self.demand("SELECT", |client| client.command(&["SELECT", &wanted.to_string()])) {
            Ok(_) => self.database = wanted,
            Err(error) => complain!("{error}"),
        }
    }

    /// The reply to a command of the session's own, or why there is none that is of use. A refusal
    /// leaves the connection; without a reply it is given up.
    fn demand(
        &mut self,
        name: &str,
        ask: impl FnOnce(&mut RespClient) -> Result<Value, ClientError>,
    ) -> Result<Value, String> {
        let reply = self.client.as_mut().map_or(Err(ClientError::Closed), ask);
        match reply {
            Ok(reply) => match reply.as_error() {
                Some(text) => Err(format!("{name} failed: {}", String::from_utf8_lossy(text))),
                None => Ok(reply),
            },
            Err(error) => {
                self.disconnect();
                Err(format!("Error: {}", explain(&error)))
            }
        }
    }

    fn report(&self, error: &ClientError) {
        complain!("Error: {}", explain(error));
    }
}

/// In the words that scripts look for.
pub fn explain(error: &ClientError) -> String {
    match error {
        ClientError::Closed => "Server closed the connection".to_owned(),
        ClientError::Io(error) => error_text(error),
        other => other.to_string(),
    }
}

/// Long commands are silent: probes keep routers from forgetting the connection, and tell us when
/// the server has gone.
pub fn keep_alive(client: &RespClient) -> io::Result<()> {
    let socket = client.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE / 3)?;
    sockopt::set_tcp_keepcnt(socket, KEEP_ALIVE_PROBES)?;
    Ok(())
}

const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_PROBES: u32 = 3;

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Connects with a password to a server that says `reply`. Whether that worked, and whether it
    /// left a connection.
    fn greeted_by(reply: &'static [u8]) -> (bool, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut options = Options::new(false);
        let port = listener.local_addr().unwrap().port();
        options.target.address = ServerAddress::Tcp { host: "127.0.0.1".into(), port };
        options.target.password = Some(b"password".to_vec());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(reply).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the client has gone.
            stream.read_to_end(&mut Vec::new()).unwrap();
        });
        let mut session = Session::new(options);
        let connected = session.connect();
        let leaves = session.is_connected();
        drop(session);
        server.join().unwrap();
        (connected.is_ok(), leaves)
    }

    #[test]
    fn only_a_refusal_leaves_a_connection() {
        assert_eq!(greeted_by(b"+OK\r\n"), (true, true));
        assert_eq!(greeted_by(b"-WRONGPASS no\r\n"), (false, true));
        assert_eq!(greeted_by(b"HTTP/1.0 400 Bad Request\r\n"), (false, false));
        assert_eq!(greeted_by(b""), (false, false));
    }
}
