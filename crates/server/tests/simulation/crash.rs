//! What was logged, and what a log has to be.
//!
//! A start that finds any beginning of the log makes of it a state that was there: exactly that in
//! which the last of its records was made. Where two records were made between two looks, as expiry
//! may, and wherever the log is cut, the accounts add up and twins are alike.

use std::collections::BTreeMap;

use bobbin_server::base::random::Random;
use bobbin_server::embedded::records::Start;
use bobbin_server::embedded::{Embedded, EmbeddedProcess, EmbeddedSession};

use super::load::{ACCOUNTS, DATABASES, TWINS};
use super::{below, encode, process, words};

pub type Digest = [u8; 20];

/// What was logged behind a base.
#[derive(Clone, Default)]
pub struct LoggedHistory {
    /// `None`: nothing was there before.
    pub base: Option<Vec<u8>>,
    /// The last record that the base holds.
    pub number: u64,
    pub records: Vec<(u64, Vec<u8>)>,
    /// What was there when a record was the last one.
    pub states: BTreeMap<u64, Digest>,
    /// Records behind which others follow before the test looked.
    pub unseen: Vec<u64>,
    /// What was heard, and the last record at that time.
    pub heard: Vec<(u64, String)>,
    pub seed: u64,
    /// What happened, for the report of a fault.
    pub story: String,
}

/// Makes states of logs.
pub struct Checker {
    process: EmbeddedProcess,
    start: Start,
    reader: Embedded,
    session: EmbeddedSession,
}

impl Checker {
    pub fn new() -> Self {
        let process = process();
        let start = process.start().expect("there are threads for all");
        let mut reader = process.worker(1).expect("there are threads for all");
        let session = reader.connect();
        Self { process, start, reader, session }
    }

    /// Whether a crash may come at any time.
    pub fn check(&mut self, history: &LoggedHistory) -> Result<(), String> {
        self.examine(history).map_err(|fault| format!("{}\n{fault}", history.story))
    }

    fn examine(&mut self, history: &LoggedHistory) -> Result<(), String> {
        self.begin(history)?;
        self.compare(history, history.number)?;
        for (number, bytes) in &history.records {
            if self.start.carry_out(bytes)? {
                return Err(format!("record {number} is not whole"));
            }
            self.compare(history, *number)?;
        }
        for (last, channel) in &history.heard {
            let named =
                |bytes: &[u8]| bytes.windows(channel.len()).any(|w| w == channel.as_bytes());
            let cause = history.records.iter().find(|(_, bytes)| named(bytes));
            let cause = cause.map(|(number, _)| *number);
            if cause.is_some_and(|number| number > *last) {
                return Err(format!("{channel} was heard at {last}, and is logged as {cause:?}"));
            }
        }
        self.cut_short(history)
    }

    fn begin(&mut self, history: &LoggedHistory) -> Result<(), String> {
        self.start.begin(history.base.as_deref())
    }

    fn compare(&mut self, history: &LoggedHistory, number: u64) -> Result<(), String> {
        match history.states.get(&number) {
            Some(state) if *state != self.start.digest() => {
                let keys = self.shown();
                Err(format!("a crash behind record {number} leaves what was never there:\n{keys}"))
            }
            Some(_) => Ok(()),
            None if history.unseen.contains(&number) => self.weigh(),
            None => Err(format!("record {number} is half a unit")),
        }
    }

    /// Ends the log anywhere.
    fn cut_short(&mut self, history: &LoggedHistory) -> Result<(), String> {
        const CUTS: usize = 3;
        let bytes: Vec<u8> = history.records.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let mut random = super::random(history.seed);
        for _ in 0..CUTS {
            let length = below(&mut random, bytes.len() + 1);
            self.begin(history)?;
            self.start.carry_out(&bytes[..length])?;
            self.weigh().map_err(|fault| format!("cut at {length} of {}: {fault}", bytes.len()))?;
        }
        Ok(())
    }

    /// Whether accounts add up and twins are alike.
    fn weigh(&mut self) -> Result<(), String> {
        weigh(&mut self.reader, &mut self.session)
    }

    pub fn digest_at_end(&mut self, history: &LoggedHistory) -> Result<Digest, String> {
        self.begin(history)?;
        for (_, bytes) in &history.records {
            self.start.carry_out(bytes)?;
        }
        Ok(self.start.digest())
    }

    /// Checks accounts and twins behind each record, and not what was there.
    pub fn weigh_all(&mut self, history: &LoggedHistory) -> Result<(), String> {
        self.begin(history)?;
        for (number, bytes) in &history.records {
            self.start.carry_out(bytes)?;
            self.weigh().map_err(|fault| format!("behind record {number}: {fault}"))?;
        }
        Ok(())
    }

    fn shown(&mut self) -> String {
        let bytes = self.reader.feed(&mut self.session, &encode(&words("KEYS *")));
        format!(
            "{} {:?}",
            String::from_utf8_lossy(bytes).replace("\r\n", " "),
            self.process.records().last()
        )
    }
}

/// Whether accounts add up and twins are alike in all databases.
pub fn weigh(reader: &mut Embedded, session: &mut EmbeddedSession) -> Result<(), String> {
    let mut command = words("MGET");
    command.extend((0..ACCOUNTS).map(|account| format!("account:{account}")));
    command.extend((0..TWINS).flat_map(|twin| [format!("one:{twin}"), format!("two:{twin}")]));
    for database in 0..DATABASES {
        reader.feed(session, &encode(&words(&format!("SELECT {database}"))));
        let reply = reader.feed(session, &encode(&command));
        let reply = String::from_utf8_lossy(reply).into_owned();
        let mut lines = reply.split("\r\n").skip(1);
        let mut value = || match lines.next() {
            Some("$-1") | None => None,
            Some(_) => lines.next(),
        };
        let number = |text: Option<&str>| text.map_or(0, |text| text.parse::<i64>().unwrap_or(0));
        let sum: i64 = (0..ACCOUNTS).map(|_| number(value())).sum();
        if sum != 0 {
            return Err(format!("the accounts of database {database} add up to {sum}: {reply}"));
        }
        for twin in 0..TWINS {
            let (one, two) = (value(), value());
            if one != two {
                return Err(format!("twins {twin} of {database} are {one:?} and {two:?}"));
            }
        }
    }
    Ok(())
}

/// What a server that does it wrong would have logged; `None`: there is nothing to do wrong.
impl LoggedHistory {
    fn chosen(&self, is_fit: impl Fn(usize) -> bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.records.len()).filter(|&at| is_fit(at)).collect();
        let mut random: Random = super::random(self.seed);
        (!fit.is_empty()).then(|| fit[below(&mut random, fit.len())])
    }

    /// A unit of two records.
    pub fn torn(&self) -> Option<Self> {
        let multi = encode(&["MULTI"]);
        let at = self.chosen(|at| self.records[at].1.starts_with(&multi))?;
        let mut torn = self.clone();
        let (number, bytes) = torn.records.remove(at);
        let inside = &bytes[multi.len()..bytes.len() - encode(&["EXEC"]).len()];
        // The second half begins with a command's first bytes.
        let starts: Vec<_> = (1..inside.len())
            .filter(|&i| inside[i] == b'*' && inside[..i].ends_with(b"\r\n"))
            .collect();
        let middle = *starts.get(starts.len() / 2)?;
        let (first, second) = inside.split_at(middle);
        for (number, _) in &mut torn.records[at..] {
            *number += 1;
        }
        torn.records.insert(at, (number + 1, second.to_vec()));
        torn.records.insert(at, (number, first.to_vec()));
        let later = torn.states.split_off(&number);
        torn.states.extend(later.into_iter().map(|(number, state)| (number + 1, state)));
        for unseen in &mut torn.unseen {
            *unseen += u64::from(*unseen >= number);
        }
        Some(torn)
    }

    /// A change that is not logged.
    pub fn with_a_record_missing(&self) -> Option<Self> {
        let at = self.chosen(|_| true)?;
        let mut changed = self.clone();
        changed.records[at].1.clear();
        Some(changed)
    }

    /// What a thread that takes its number too late may bring about.
    pub fn with_two_records_exchanged(&self) -> Option<Self> {
        let at = self.chosen(|at| at > 0 && self.records[at].1 != self.records[at - 1].1)?;
        let mut changed = self.clone();
        let [one, two] = [at - 1, at].map(|at| self.records[at].1.clone());
        (changed.records[at - 1].1, changed.records[at].1) = (two, one);
        Some(changed)
    }

    /// A base that holds more than it says.
    pub fn with_a_later_base(&self) -> Option<Self> {
        self.base.as_ref()?;
        let mut changed = self.clone();
        let (number, _) = *changed.records.get(1)?;
        changed.number = number;
        changed.records.drain(..2);
        Some(changed)
    }

    /// What others hear of before it has its place in the log.
    pub fn with_a_message_too_early(&self) -> Option<Self> {
        let mut changed = self.clone();
        let (_, channel) = self.heard.first()?;
        let named = |bytes: &[u8]| bytes.windows(channel.len()).any(|w| w == channel.as_bytes());
        let cause = self.records.iter().find(|(_, bytes)| named(bytes))?;
        changed.heard[0].0 = cause.0 - 1;
        Some(changed)
    }
}
