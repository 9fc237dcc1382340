//! Running a command: sending it, showing what comes, and noting what it changed of the session.

use std::time::{Duration, Instant};

use bobbin_client::{ClientError, ServerAddress, Value};
use bobbin_resp::Protocol;

use super::{
    Lost, Redirection, Session, SubscribedMode, attach_by_command, pager, subscribed::message_name,
    verbatim,
};
use crate::{interrupt, options::Repeat, terminal};

impl Session {
    /// Runs a command and shows its replies, connecting first where there is no connection and
    /// following a cluster's redirections.
    pub fn run(&mut self, words: &[Vec<u8>], repeat: Repeat) -> Result<(), Lost> {
        for _ in 0..REDIRECTIONS_MAX {
            if self.client.is_none() {
                self.connect_for_command()?;
            }
            if let Err(lost) = self.run_here(words, repeat) {
                self.disconnect();
                return Err(lost);
            }
            let Some(redirection) = self.redirection.take() else { return Ok(()) };
            self.follow(&redirection)?;
        }
        complain!("Error: more than {REDIRECTIONS_MAX} redirections");
        Err(Lost)
    }

    /// Reads and shows the next reply; what is pushed before it is shown or dropped as the options
    /// say, unless `pushes` makes a push an answer too.
    pub fn show_reply(&mut self, verbatim: bool, pushes: Pushes) -> Result<Option<Value>, Lost> {
        let reply = match self.next_reply(pushes) {
            Ok(Some(reply)) => reply,
            // The reply may still come: the connection is of no more use.
            Ok(None) => {
                self.disconnect();
                return Err(Lost);
            }
            Err(error) if self.shutting_down && error.is_closed() => {
                self.disconnect();
                return Ok(None);
            }
            Err(error) => return self.failed(&error).map(|()| None),
        };
        if pushes == Pushes::Answer {
            self.subscribed.note(&reply, self.protocol);
        }
        if self.options.cluster
            && let Some(redirection) = Redirection::parse(&reply)
        {
            self.redirection = Some(redirection);
            return Ok(Some(reply));
        }
        if self.options.fail_on_error
            && !self.interactive
            && let Some(text) = reply.as_error()
        {
            complain!("{}", String::from_utf8_lossy(text));
            std::process::exit(1);
        }
        let text = self.options.style.reply(&reply, verbatim);
        if self.pages && pushes == Pushes::Aside {
            let start = Instant::now();
            pager::write(&text);
            self.paged += start.elapsed();
        } else {
            terminal::write(&text);
        }
        Ok(Some(reply))
    }

    /// Shows what comes for subscribers until the connection or the program ends: as with
    /// valkey-cli that is so even when the server has ended the last subscription.
    pub fn show_messages(&mut self) {
        if !self.is_subscribed() {
            return;
        }
        while self.show_reply(false, Pushes::Answer).is_ok() {}
        std::process::exit(1);
    }

    /// Shows what has come for subscribers, without waiting for more.
    pub fn show_received(&mut self) -> Result<(), Lost> {
        while let Some(client) = &mut self.client {
            match client.receive_buffered() {
                Ok(Some(value)) => {
                    self.subscribed.note(&value, self.protocol);
                    terminal::write(&self.options.style.reply(&value, false));
                }
                Ok(None) => break,
                Err(error) => {
                    self.report(&error);
                    self.disconnect();
                    return Err(Lost);
                }
            }
        }
        Ok(())
    }

    /// A refused password or database has been said, and leaves a connection on which the command
    /// may still be worth a try: its own error says more.
    fn connect_for_command(&mut self) -> Result<(), Lost> {
        match self.connect() {
            Err(lost) if self.client.is_none() => Err(lost),
            _ => Ok(()),
        }
    }

    fn run_here(&mut self, words: &[Vec<u8>], repeat: Repeat) -> Result<(), Lost> {
        let command = Command::of(words);
        let verbatim = verbatim::is_text(words);
        let mut done = 0;
        while repeat == Repeat::Forever || repeat != Repeat::Times(done) {
            done += 1;
            let Some(client) = &mut self.client else { return Err(Lost) };
            client.send(words);
            self.shutting_down = command == Command::Shutdown;
            match command {
                Command::Monitor => return self.monitor(),
                Command::Sync => {
                    out!("Entering replica output mode...  (press Ctrl-C to quit)\n");
                    return attach_by_command(self);
                }
                _ => {}
            }
            let Some(reply) = self.answer(command, words, verbatim)? else { return Ok(()) };
            if self.redirection.is_some() {
                return Ok(());
            }
            self.note(command, words, &reply);
            if let Some(interval) = self.options.interval {
                interrupt::sleep(interval);
            }
        }
        Ok(())
    }

    /// The reply of a command, or that there will be none. A subscription is confirmed once for
    /// each channel; messages may come between.
    fn answer(
        &mut self,
        command: Command,
        words: &[Vec<u8>],
        verbatim: bool,
    ) -> Result<Option<Value>, Lost> {
        let mut confirmations = match command {
            Command::Subscribe | Command::Unsubscribe => (words.len() - 1).max(1),
            _ => 0,
        };
        loop {
            let listening = self.is_subscribed() || confirmations > 0;
            let pushes = if listening { Pushes::Answer } else { Pushes::Aside };
            let reply = match self.show_reply(verbatim, pushes) {
                Ok(Some(reply)) => reply,
                other => return other,
            };
            if !listening {
                return Ok(Some(reply));
            }
            match message_name(&reply, self.protocol) {
                Some(name) if confirmations > 0 && name.eq_ignore_ascii_case(&words[0]) => {
                    confirmations -= 1;
                    if confirmations == 0 {
                        return Ok(Some(reply));
                    }
                }
                Some(_) => {}
                None if matches!(reply, Value::Push(_)) => {}
                None => return Ok(Some(reply)),
            }
        }
    }

    /// Shows what MONITOR reports, until Ctrl-C or an error.
    fn monitor(&mut self) -> Result<(), Lost> {
        let hold = self.interactive.then(interrupt::hold);
        loop {
            match self.next_or_interrupt() {
                Ok(Some(Value::Push(_))) if !self.options.show_pushes => {}
                Ok(Some(reply)) => {
                    terminal::write(&self.options.style.reply(&reply, false));
                    if reply.is_error() {
                        return Ok(());
                    }
                }
                Ok(None) => {
                    drop(hold);
                    return self.connect();
                }
                Err(error) => return self.failed(&error),
            }
        }
    }

    /// The next value, or `None` when Ctrl-C was pressed while some code holds it.
    fn next_or_interrupt(&mut self) -> Result<Option<Value>, ClientError> {
        let Some(client) = &mut self.client else { return Err(ClientError::Closed) };
        if !interrupt::is_held() {
            return client.receive_any().map(Some);
        }
        client.set_read_timeout(Some(INTERRUPT_POLL))?;
        let received = loop {
            match client.receive_any() {
                Err(error) if error.is_timeout() && interrupt::is_pressed() => break Ok(None),
                Err(error) if error.is_timeout() => {}
                received => break received.map(Some),
            }
        };
        client.set_read_timeout(None)?;
        received
    }

    /// The next reply, or `None` when Ctrl-C was pressed while some code holds it.
    fn next_reply(&mut self, pushes: Pushes) -> Result<Option<Value>, ClientError> {
        loop {
            let Some(value) = self.next_or_interrupt()? else { return Ok(None) };
            match pushes {
                Pushes::Aside if matches!(value, Value::Push(_)) => {
                    if self.options.show_pushes {
                        terminal::write(&self.options.style.push(&value));
                    }
                }
                _ => return Ok(Some(value)),
            }
        }
    }

    /// What a connection that is lost, or of no more use, means: the shell goes on, a command ends
    /// the program. The shell must not end here, as it may have changed the terminal.
    fn failed(&mut self, error: &ClientError) -> Result<(), Lost> {
        self.report(error);
        if self.interactive {
            return Err(Lost);
        }
        std::process::exit(1);
    }

    /// Goes where a cluster's node sent us.
    fn follow(&mut self, redirection: &Redirection) -> Result<(), Lost> {
        if let ServerAddress::Tcp { host, port } = &mut self.address {
            if let Some(new) = &redirection.host {
                host.clone_from(new);
            }
            *port = redirection.port;
        }
        if self.interactive {
            out!("-> Redirected to slot [{}] located at {}\n", redirection.slot, self.address);
        }
        self.connect_for_command()?;
        if redirection.ask
            && let Err(text) = self.demand("ASKING", |client| client.command(&["ASKING"]))
        {
            complain!("{text}");
            return Err(Lost);
        }
        Ok(())
    }

    /// What a command that succeeded changed of the session.
    fn note(&mut self, command: Command, words: &[Vec<u8>], reply: &Value) {
        let worked = !reply.is_error();
        match command {
            Command::Select if words.len() == 2 && worked => {
                let number = String::from_utf8_lossy(&words[1]).parse().unwrap_or(0);
                self.wanted_database = number;
                self.database = number;
            }
            Command::Auth if matches!(words.len(), 2 | 3) && worked => self.select_wanted(),
            Command::Multi if words.len() == 1 && worked => self.transaction = Some(self.database),
            Command::Exec if words.len() == 1 => {
                // What a transaction selected does not last when it did not run.
                if let Some(before) = self.transaction.take()
                    && (!worked || reply.is_null())
                {
                    self.wanted_database = before;
                    self.database = before;
                }
            }
            Command::Discard if words.len() == 1 && worked => {
                if let Some(before) = self.transaction.take() {
                    self.wanted_database = before;
                    self.database = before;
                }
            }
            Command::Reset if words.len() == 1 && worked => {
                self.transaction = None;
                self.wanted_database = 0;
                self.database = 0;
                self.protocol = Protocol::Resp2;
                self.subscribed = SubscribedMode::default();
            }
            Command::Hello => match reply {
                Value::Map(_) => self.protocol = Protocol::Resp3,
                Value::Array(_) => self.protocol = Protocol::Resp2,
                _ => {}
            },
            _ => {}
        }
    }
}

/// What to do with pushes that come while a reply is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushes {
    /// Show or drop them.
    Aside,
    /// They are what is awaited.
    Answer,
}

/// The commands that change the session, or whose replies are special.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Auth,
    Discard,
    Exec,
    Hello,
    Monitor,
    Multi,
    Reset,
    Select,
    Shutdown,
    Subscribe,
    Sync,
    Unsubscribe,
    Other,
}

impl Command {
    fn of(words: &[Vec<u8>]) -> Self {
        let Some(name) = words.first() else { return Self::Other };
        match name.to_ascii_lowercase().as_slice() {
            b"auth" => Self::Auth,
            b"discard" => Self::Discard,
            b"exec" => Self::Exec,
            b"hello" => Self::Hello,
            b"monitor" => Self::Monitor,
            b"multi" => Self::Multi,
            b"reset" => Self::Reset,
            b"select" => Self::Select,
            b"shutdown" => Self::Shutdown,
            b"subscribe" | b"psubscribe" | b"ssubscribe" => Self::Subscribe,
            b"sync" | b"psync" => Self::Sync,
            b"unsubscribe" | b"punsubscribe" | b"sunsubscribe" => Self::Unsubscribe,
            _ => Self::Other,
        }
    }
}

/// A cluster whose nodes send us round in circles is broken.
const REDIRECTIONS_MAX: usize = 64;
/// How often a wait looks whether Ctrl-C was pressed.
const INTERRUPT_POLL: Duration = Duration::from_millis(100);
