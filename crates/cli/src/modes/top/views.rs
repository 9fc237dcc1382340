//! The views, and what each lists.

use super::{
    change::Change,
    sample::{Answer, LargestKey, Question},
    table::{Column, Sort, TableCell, ViewTable, number, text, wide},
    text as show,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Overview,
    Threads,
    Commands,
    Clients,
    Slow,
    Keys,
    Databases,
    Info,
}

impl View {
    pub const ALL: [Self; 8] = [
        Self::Overview,
        Self::Threads,
        Self::Commands,
        Self::Clients,
        Self::Slow,
        Self::Keys,
        Self::Databases,
        Self::Info,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Threads => "Threads",
            Self::Commands => "Commands",
            Self::Clients => "Clients",
            Self::Slow => "Slow",
            Self::Keys => "Keys",
            Self::Databases => "Databases",
            Self::Info => "Info",
        }
    }

    pub fn place(self) -> usize {
        Self::ALL.iter().position(|view| *view == self).unwrap_or(0)
    }

    /// What it needs beside what is always asked.
    pub fn question(self) -> Option<Question> {
        match self {
            Self::Clients => Some(Question::Clients),
            Self::Keys => Some(Question::HotKeys),
            _ => None,
        }
    }

    /// None for the overview, which is no table.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Overview => &[],
            Self::Threads => THREADS,
            Self::Commands => COMMANDS,
            Self::Clients => CLIENTS,
            Self::Slow => SLOW,
            Self::Keys => KEYS,
            Self::Databases => DATABASES,
            Self::Info => INFO,
        }
    }

    /// The order before the user chose one.
    pub fn sort(self) -> Sort {
        match self {
            Self::Commands => Sort::by(COMMANDS, COMMANDS_SHARE),
            Self::Clients => Sort::by(CLIENTS, CLIENTS_COMMANDS),
            Self::Keys => Sort::by(KEYS, KEYS_TIME),
            _ => Sort::default(),
        }
    }

    /// All rows, as the server orders them.
    pub fn table(self, change: &Change) -> ViewTable {
        let mut table = ViewTable::new(self.columns());
        match self {
            Self::Overview => {}
            Self::Threads => threads(change, &mut table),
            Self::Commands => commands(change, &mut table),
            Self::Clients => clients(change, &mut table),
            Self::Slow => slow(change, &mut table),
            Self::Keys => keys(change, &mut table),
            Self::Databases => databases(change, &mut table),
            Self::Info => info(change, &mut table),
        }
        table
    }
}

fn threads(change: &Change, table: &mut ViewTable) {
    for thread in &change.now.threads {
        let changed = change.thread(thread);
        table.add(
            &thread.name,
            vec![
                TableCell::Text(thread.name.clone()),
                TableCell::of(changed.load, show::percent),
                TableCell::of(changed.busy, show::percent),
                TableCell::of(changed.commands_per_second, show::count),
                TableCell::count(thread.clients),
                TableCell::of(changed.reads_per_second, show::count),
                TableCell::of(changed.writes_per_second, show::count),
                TableCell::bytes(thread.backlog_bytes),
            ],
        );
    }
    if table.rows.is_empty() {
        table.notes.push("INFO has nothing about threads.".into());
    }
}

fn commands(change: &Change, table: &mut ViewTable) {
    for command in &change.now.commands {
        let changed = change.command(command);
        let of = |field: fn(&super::change::CommandChange) -> Option<f64>, show| {
            TableCell::of(changed.as_ref().and_then(field), show)
        };
        table.add(
            &command.name,
            vec![
                TableCell::Text(command.name.clone()),
                of(|change| Some(change.calls_per_second), show::count),
                of(|change| Some(change.share), show::percent),
                of(|change| change.mean_us, show::micros),
                TableCell::of(command.p50_us, show::micros),
                TableCell::of(command.p99_us, show::micros),
                TableCell::of(command.p999_us, show::micros),
                of(|change| change.failures_per_second, show::count),
                TableCell::count(Some(command.calls)),
            ],
        );
    }
    if table.rows.is_empty() {
        table.notes.push("INFO has no section commandstats.".into());
    }
}

fn clients(change: &Change, table: &mut ViewTable) {
    table.notes.extend(change.now.clients.why_missing(Question::Clients));
    let connections = change.now.clients.given().map_or(&[][..], Vec::as_slice);
    for (connection, changed) in connections.iter().zip(change.connections()) {
        table.add(
            connection.id.to_string(),
            vec![
                TableCell::whole(Some(connection.id)),
                TableCell::Text(connection.address.clone()),
                TableCell::Text(connection.user.clone()),
                TableCell::Text(connection.name.clone()),
                TableCell::Text(connection.command.clone()),
                TableCell::of(changed.commands_per_second, show::count),
                TableCell::of(changed.received_per_second, show::bytes),
                TableCell::of(changed.sent_per_second, show::bytes),
                TableCell::bytes(connection.memory_bytes),
                TableCell::bytes(connection.output_bytes),
                TableCell::seconds(connection.age_s),
                TableCell::seconds(connection.idle_s),
                TableCell::whole(connection.database),
                TableCell::whole(connection.thread),
                TableCell::Text(connection.flags.clone()),
                TableCell::Text(connection.library.clone()),
            ],
        );
    }
}

fn slow(change: &Change, table: &mut ViewTable) {
    let now = change.now;
    table.notes.extend(now.slow.why_missing(Question::SlowLog));
    table.notes.extend(match &now.events {
        Answer::Given(events) => {
            events.iter().map(|event| event.line(now.unix_seconds())).collect()
        }
        answer => Vec::from_iter(answer.why_missing(Question::Latency)),
    });
    let entries = now.slow.given().map_or(&[][..], Vec::as_slice);
    for entry in entries {
        let ago = now.unix_seconds().map(|now| now.saturating_sub(entry.unix_s));
        table.add(
            entry.id.to_string(),
            vec![
                TableCell::of(Some(entry.time_us as f64), show::micros),
                TableCell::seconds(ago),
                TableCell::whole(Some(entry.id)),
                TableCell::Text(entry.address.clone()),
                TableCell::Text(entry.client.clone()),
                TableCell::Text(entry.command.clone()),
            ],
        );
    }
    if now.slow.given().is_some() && entries.is_empty() {
        table.notes.push(SLOWLOG_EMPTY.into());
    }
}

fn keys(change: &Change, table: &mut ViewTable) {
    table.notes.extend(change.now.hot.why_missing(Question::HotKeys));
    let Some(hot) = change.now.hot.given() else { return };
    if !hot.is_known {
        table.notes.push(HOW_TO_WATCH.into());
    } else if !hot.is_watching {
        table.notes.push("Counted before: HOTKEYS is stopped.".into());
    }
    let cell = |key: &LargestKey, of: fn(&LargestKey) -> Option<u64>, show| {
        TableCell::of(of(key).map(|number| number as f64), show)
    };
    for key in &hot.keys {
        table.add(
            &key.key,
            vec![
                cell(key, |key| key.time_us, show::micros),
                cell(key, |key| key.traffic_bytes, show::bytes),
                cell(key, |key| key.size_bytes, show::bytes),
                TableCell::Text(key.key.clone()),
            ],
        );
    }
}

fn databases(change: &Change, table: &mut ViewTable) {
    for database in &change.now.databases {
        table.add(
            database.number.to_string(),
            vec![
                TableCell::whole(Some(database.number.into())),
                TableCell::count(Some(database.keys)),
                TableCell::count(Some(database.expiring)),
                TableCell::seconds(database.ttl_mean_ms.map(|ms| ms / 1000)),
            ],
        );
    }
    if table.rows.is_empty() {
        table.notes.push("There are no keys.".into());
    }
}

fn info(change: &Change, table: &mut ViewTable) {
    let fields = change.now.info.fields();
    for field in fields {
        let shown = |text: &str| show::safe(text.as_bytes(), FIELD_LEN_MAX);
        let rate = change.rate(&field.name).filter(|rate| *rate > 0.0);
        table.add(
            shown(&field.name),
            vec![
                TableCell::Text(shown(&field.name)),
                TableCell::Text(shown(&field.section)),
                TableCell::of(rate, show::count),
                TableCell::Text(shown(&field.value)),
            ],
        );
    }
    if fields.is_empty() {
        table.notes.push("INFO: no answer, or not allowed.".into());
    }
}

static THREADS: &[Column] = &[
    text("thread"),
    number("load"),
    number("busy"),
    number("commands/s"),
    number("clients"),
    number("reads/s"),
    number("writes/s"),
    number("backlog"),
];

static COMMANDS: &[Column] = &[
    text("command"),
    number("calls/s"),
    number("load"),
    number("mean"),
    number("p50"),
    number("p99"),
    number("p99.9"),
    number("failed/s"),
    number("calls"),
];
const COMMANDS_SHARE: usize = 2;

static CLIENTS: &[Column] = &[
    number("id"),
    text("address"),
    text("user"),
    text("name"),
    text("command"),
    number("commands/s"),
    number("in/s"),
    number("out/s"),
    number("memory"),
    number("output"),
    number("age"),
    number("idle"),
    number("db"),
    number("thread"),
    text("flags"),
    text("library"),
];
const CLIENTS_COMMANDS: usize = 5;

static SLOW: &[Column] =
    &[number("took"), number("ago"), number("id"), text("address"), text("name"), wide("command")];

static KEYS: &[Column] = &[number("time"), number("traffic"), number("size"), wide("key")];
const KEYS_TIME: usize = 0;

static DATABASES: &[Column] =
    &[number("db"), number("keys"), number("with expiry"), number("mean ttl")];

static INFO: &[Column] = &[text("field"), text("section"), number("change/s"), wide("value")];

const SLOWLOG_EMPTY: &str =
    "SLOWLOG is empty: no command took as long as slowlog-log-slower-than, or it is off.";
const HOW_TO_WATCH: &str =
    "Nobody has it watch keys. To begin: HOTKEYS START METRICS 2 CPU NET (Bobbin: 3 CPU NET SIZE).";
const FIELD_LEN_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, tests::of_info};
    use super::*;
    use bobbin_client::Value;

    #[test]
    fn every_row_has_every_column() {
        let text = "run_id:a\nused_cpu_user:1\nused_cpu_sys:1\nio_thread_1:clients=1\n\
                    cmdstat_get:calls=5,usec=10\ndb0:keys=5\n";
        let (before, mut now) = (of_info(0, text), of_info(1, text));
        now.read(Question::Clients, &Value::Bulk(b"id=4 addr=a".to_vec()));
        let change = Change::new(&now, Some(&before));
        for view in View::ALL {
            let table = view.table(&change);
            assert!(table.rows.iter().all(|row| row.cells.len() == view.columns().len()));
            let is_empty = matches!(view, View::Overview | View::Slow | View::Keys);
            assert_eq!(table.rows.is_empty(), is_empty, "{view:?}");
            assert_eq!(View::ALL[view.place()], view);
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut sample = Sample::default();
        for question in [Question::SlowLog, Question::Latency, Question::Clients] {
            sample.read(question, &Value::Error(b"NOPERM no".to_vec()));
        }
        let change = Change::new(&sample, None);
        for view in View::ALL {
            let notes = view.table(&change).notes;
            assert_eq!(notes.is_empty(), view == View::Overview, "{view:?}");
        }
        assert!(View::Clients.table(&change).notes[0].contains("NOPERM"));
        sample.read(Question::HotKeys, &Value::NullArray);
        let notes = View::Keys.table(&Change::new(&sample, None)).notes;
        assert_eq!(notes, [HOW_TO_WATCH]);
    }

    #[test]
    fn the_columns_of_first_orders() {
        assert_eq!(COMMANDS[COMMANDS_SHARE].title, "load");
        assert_eq!(CLIENTS[CLIENTS_COMMANDS].title, "commands/s");
        assert_eq!(KEYS[KEYS_TIME].title, "time");
    }
}
