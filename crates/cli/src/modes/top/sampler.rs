//! Asking the server, once in each interval, on a thread of its own: a server that is slow, or that
//! is not there, holds up no key.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use bobbin_client::{ClientError, RespClient, Target, Transport, Value, error_text};

use super::{
    sample::{Answer, Question, Sample},
    text,
};
use crate::{
    modes::info::Info,
    session::{Session, explain, keep_alive},
};

/// What the thread is told.
#[derive(Debug)]
pub enum SamplerOrder {
    /// From now on also ask this, and look at once if that is something.
    Ask(Option<Question>),
    /// Disconnect a client.
    Kill(u64),
    /// What is shown is frozen, or goes on: a recording waits for that.
    Freeze(bool),
}

/// What the thread tells.
pub enum News {
    Sample(Box<Sample>),
    /// There was no answer, and why. It tries again.
    Lost(String),
    /// What came of [`SamplerOrder::Kill`], for the user.
    Notice(String),
}

/// A thread that asks, and the ways to it and from it.
pub struct Sampler {
    pub orders: SyncSender<SamplerOrder>,
    pub news: Receiver<News>,
}

impl Sampler {
    /// Starts looking, and asks `also` from the beginning. It ends when this is dropped, or with
    /// the process.
    pub fn start(
        session: &Session,
        started: Instant,
        interval: Duration,
        also: &[Question],
    ) -> Self {
        Self::start_asking(Asker::new(session, started, false), interval, also)
    }

    /// As [`Self::start`], and keeps the replies in the samples.
    pub fn start_keeping(
        session: &Session,
        started: Instant,
        interval: Duration,
        also: &[Question],
    ) -> Self {
        Self::start_asking(Asker::new(session, started, true), interval, also)
    }

    /// Starts a thread that does `tell`.
    pub fn start_with(
        tell: impl FnOnce(&Receiver<SamplerOrder>, &SyncSender<News>) + Send + 'static,
    ) -> Self {
        let (orders, for_thread) = sync_channel(ORDERS_MAX);
        let (for_us, news) = sync_channel(NEWS_MAX);
        thread::spawn(move || tell(&for_thread, &for_us));
        Self { orders, news }
    }

    fn start_asking(asker: Asker, interval: Duration, also: &[Question]) -> Self {
        let also = also.to_vec();
        Self::start_with(move |orders, news| run(asker, interval, also, orders, news))
    }
}

fn run(
    mut asker: Asker,
    interval: Duration,
    mut also: Vec<Question>,
    orders: &Receiver<SamplerOrder>,
    news: &SyncSender<News>,
) {
    let mut next = Instant::now();
    loop {
        let told = match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(SamplerOrder::Ask(question)) => {
                also = Vec::from_iter(question);
                if also.is_empty() {
                    continue;
                }
                Ok(())
            }
            Ok(SamplerOrder::Freeze(_)) => continue,
            Ok(SamplerOrder::Kill(id)) => news.send(News::Notice(asker.kill(id))),
        };
        let looked = match asker.look(&also) {
            Ok(sample) => News::Sample(Box::new(sample)),
            Err(reason) => News::Lost(reason),
        };
        let pause =
            if matches!(looked, News::Lost(_)) { LOST_PAUSE.max(interval) } else { interval };
        if told.and_then(|()| news.send(looked)).is_err() {
            return;
        }
        next = Instant::now() + pause;
    }
}

/// Asks one server, connecting as often as that needs.
struct Asker {
    target: Target,
    transport: Transport,
    started: Instant,
    keeps_replies: bool,
    line: Option<Line>,
}

/// A connection.
struct Line {
    client: RespClient,
    /// As which the server lists it.
    id: Option<u64>,
    /// How many clients the server has.
    clients: f64,
    /// What it refused, and will refuse again.
    refused: Vec<(Question, Value)>,
}

impl Asker {
    fn new(session: &Session, started: Instant, keeps_replies: bool) -> Self {
        let mut target = session.options.target.clone();
        target.address = session.address.clone();
        let transport = session.options.transport.clone();
        Self { target, transport, started, keeps_replies, line: None }
    }

    /// The error is for the user.
    fn look(&mut self, also: &[Question]) -> Result<Sample, String> {
        let started = self.started;
        let line = match &mut self.line {
            Some(line) => line,
            none => none.insert(Line::open(&self.target, &self.transport)?),
        };
        line.look(started, also, self.keeps_replies).map_err(|error| {
            let reason = text::safe(explain(&error).as_bytes(), REASON_LEN_MAX);
            self.line = None;
            reason
        })?
    }

    /// Disconnects a client, and says what came of it.
    fn kill(&mut self, id: u64) -> String {
        let Some(line) = &mut self.line else { return "There is no connection.".to_owned() };
        if line.id == Some(id) {
            return "That is this view's own connection.".to_owned();
        }
        match line.client.command(&["CLIENT", "KILL", "ID", &id.to_string()]) {
            Err(error) => {
                let reason = text::safe(explain(&error).as_bytes(), REASON_LEN_MAX);
                self.line = None;
                reason
            }
            Ok(Value::Integer(0)) => format!("Client {id} had gone already."),
            Ok(reply) => match reply.as_error() {
                Some(error) => text::safe(error, REASON_LEN_MAX),
                None => format!("Client {id} was disconnected."),
            },
        }
    }
}

impl Line {
    fn open(target: &Target, transport: &Transport) -> Result<Self, String> {
        let address = &target.address;
        let shown = |reason: &str| text::safe(reason.as_bytes(), REASON_LEN_MAX);
        let cannot = |error| {
            let reason = error_text(&error);
            shown(&format!("Could not connect to {address}: {reason}"))
        };
        let mut client = RespClient::connect_to(address, transport).map_err(cannot)?;
        if matches!(address, bobbin_client::ServerAddress::Tcp { .. }) {
            keep_alive(&client).map_err(cannot)?;
        }
        client.limit_replies(REPLY_LEN_MAX);
        client.set_read_timeout(Some(SILENCE_MAX)).map_err(cannot)?;
        let lost = |error| shown(&explain(&error));
        if let Some(password) = &target.password {
            let user = target.user.as_deref();
            let words: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(user).chain([&password[..]]).collect();
            let reply = receive(&mut client, &words).map_err(lost)?;
            if let Some(error) = reply.as_error() {
                return Err(shown(&format!("AUTH failed: {}", String::from_utf8_lossy(error))));
            }
        }
        // Old servers, and users with few rights, refuse these; then there is no name and no ID.
        receive(&mut client, &["CLIENT", "SETNAME", NAME]).map_err(lost)?;
        let id = receive(&mut client, &["CLIENT", "ID"]).map_err(lost)?;
        let counts = receive(&mut client, &["INFO", "clients"]).map_err(lost)?;
        Ok(Self {
            client,
            id: id.as_integer().and_then(|id| u64::try_from(id).ok()),
            clients: Info::read(&counts).number("connected_clients").unwrap_or(0.0),
            refused: Vec::new(),
        })
    }

    /// Measures a PING, and then asks everything at once. The inner error is the server's: the
    /// connection stays.
    fn look(
        &mut self,
        started: Instant,
        also: &[Question],
        keeps_replies: bool,
    ) -> Result<Result<Sample, String>, ClientError> {
        let has_too_many = self.clients > CLIENTS_MAX;
        let is_asked = |question: &Question| {
            let is_refused = self.refused.iter().any(|(refused, _)| refused == question);
            !(is_refused || has_too_many && *question == Question::Clients)
        };
        // INFO comes last: what was refused for the first time counts as before the first sample.
        let questions = ALWAYS.iter().chain(also).chain(&[Question::Info]).copied();
        let questions: Vec<_> = questions.filter(is_asked).collect();
        let pinged = Instant::now();
        receive(&mut self.client, &["PING"])?;
        let mut sample = Sample::new(started.elapsed(), pinged.elapsed());
        for question in &questions {
            self.client.send(question.words());
        }
        let mut fault = None;
        for question in questions {
            let reply = receive_reply(&mut self.client)?;
            if let Some(error) = reply.as_error() {
                if question == Question::Info {
                    let words = format!("INFO: {}", String::from_utf8_lossy(error));
                    fault = Some(text::safe(words.as_bytes(), REASON_LEN_MAX));
                } else if REFUSALS.iter().any(|refusal| error.starts_with(refusal)) {
                    self.refused.push((question, reply));
                    continue;
                }
            }
            sample.read(question, &reply);
            if keeps_replies {
                sample.replies.push((question, reply));
            }
        }
        for (question, reply) in &self.refused {
            sample.read(*question, reply);
        }
        if keeps_replies {
            sample.replies.extend(self.refused.iter().cloned());
        }
        if has_too_many && also.contains(&Question::Clients) {
            sample.clients = Answer::Refused("too many clients to list them so often".into());
        }
        self.clients = sample.info.number("connected_clients").unwrap_or(self.clients);
        Ok(fault.map_or(Ok(sample), Err))
    }
}

fn receive(client: &mut RespClient, words: &[impl AsRef<[u8]>]) -> Result<Value, ClientError> {
    client.send(words);
    receive_reply(client)
}

/// The next reply. Nothing was subscribed to, so what is pushed is of no use.
fn receive_reply(client: &mut RespClient) -> Result<Value, ClientError> {
    loop {
        match client.receive_any()? {
            Value::Push(_) => {}
            reply => return Ok(reply),
        }
    }
}

/// Beside INFO.
const ALWAYS: [Question; 2] = [Question::SlowLog, Question::Latency];
/// How errors begin that a server would only repeat, and count.
const REFUSALS: [&[u8]; 3] = [b"ERR unknown", b"ERR Unknown", b"NOPERM"];
/// As what CLIENT LIST shows it.
const NAME: &str = "bobbin-cli-top";

/// More keys in a moment than anybody types.
const ORDERS_MAX: usize = 256;
const NEWS_MAX: usize = 4;
/// More clients make a list that costs a server some milliseconds.
const CLIENTS_MAX: f64 = 10_000.0;
/// For how long a server may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Between two attempts to connect.
const LOST_PAUSE: Duration = Duration::from_secs(1);
/// The list of [`CLIENTS_MAX`] clients is a tenth of it.
const REPLY_LEN_MAX: usize = 32 << 20;
const REASON_LEN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;

    /// A server that answers each of its clients with these bytes, whatever it is asked.
    fn server(answers: Vec<Vec<u8>>) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut written = stream.try_clone().unwrap();
                // The client may leave in the middle.
                thread::spawn(move || drop(written.write_all(&answer)));
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest));
            }
        });
        let host = "127.0.0.1".to_owned();
        Target { address: bobbin_client::ServerAddress::Tcp { host, port }, ..Target::default() }
    }

    fn asker(answers: Vec<Vec<u8>>) -> Asker {
        let target = server(answers);
        let transport = Transport::default();
        Asker { target, transport, started: Instant::now(), keeps_replies: true, line: None }
    }

    fn bulk(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    /// To SETNAME, ID and INFO.
    fn greeting(clients: u32) -> String {
        format!("+OK\r\n:9\r\n{}", bulk(&format!("connected_clients:{clients}")))
    }

    #[test]
    fn what_is_refused_is_asked_once() {
        let first = "+PONG\r\n-ERR unknown command 'SLOWLOG'\r\n-NOPERM no\r\n*0\r\n$3\r\na:1\r\n";
        let second = format!("+PONG\r\n*0\r\n{}", bulk("a:2"));
        let answers = greeting(1) + first + &second;
        let mut asker = asker(vec![answers.into_bytes()]);
        for count in [1.0, 2.0] {
            let sample = asker.look(&[Question::HotKeys]).unwrap();
            assert_eq!(sample.info.number("a"), Some(count));
            assert!(matches!(&sample.slow, Answer::Refused(error) if error.contains("unknown")));
            assert_eq!(sample.events, Answer::Refused("NOPERM no".into()));
            assert!(sample.hot.given().is_some());
        }
        assert_eq!(asker.kill(9), "That is this view's own connection.");
    }

    #[test]
    fn long_lists_are_not_asked_for() {
        let answers = greeting(50_000) + "+PONG\r\n*0\r\n*0\r\n$3\r\na:1\r\n:0\r\n:1\r\n";
        let mut asker = asker(vec![answers.into_bytes()]);
        let sample = asker.look(&[Question::Clients]).unwrap();
        assert!(matches!(&sample.clients, Answer::Refused(error) if error.contains("too many")));
        assert_eq!(asker.kill(5), "Client 5 had gone already.");
        assert_eq!(asker.kill(5), "Client 5 was disconnected.");
    }

    #[test]
    fn a_lost_connection_is_made_again() {
        let looked = "+PONG\r\n*0\r\n*0\r\n$3\r\na:1\r\n";
        let busy = "+PONG\r\n*0\r\n*0\r\n-BUSY a script\x1b[2J\r\n";
        let garbage = greeting(1) + "+PONG\r\n?";
        let whole = greeting(1) + busy + looked;
        let too_long =
            greeting(1) + "+PONG\r\n$99999999\r\n" + &"x".repeat(REPLY_LEN_MAX + (20 << 20));
        let answers = [garbage, too_long, whole].map(String::into_bytes);
        let mut asker = asker(answers.into());
        assert!(asker.look(&[]).is_err());
        assert_eq!(asker.kill(5), "There is no connection.");
        assert_eq!(asker.look(&[]).unwrap_err(), "a reply that is too long");
        assert_eq!(asker.look(&[]).unwrap_err(), r"INFO: BUSY a script\x1b[2J");
        assert_eq!(asker.look(&[]).unwrap().info.number("a"), Some(1.0));
    }

    #[test]
    fn nobody_is_there() {
        let mut asker = asker(Vec::new());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let host = "127.0.0.1".to_owned();
        asker.target.address = bobbin_client::ServerAddress::Tcp { host, port };
        let error = asker.look(&[]).unwrap_err();
        assert!(error.starts_with("Could not connect to 127.0.0.1:"), "{error}");
    }
}
