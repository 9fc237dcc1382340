//! What is on the screen, apart from how it looks: the samples, the view, and what keys do to it.

use std::{collections::VecDeque, time::Duration};

use super::{
    change::Change,
    sample::Sample,
    table::{Sort, ViewTable},
    views::View,
};
use crate::keyboard::KeyPress;

pub struct TopModel {
    /// Where the server is.
    pub address: String,
    /// Between two looks.
    interval: Duration,
    pub link: ServerLink,
    pub view: View,
    pub input: InputMode,
    /// No new samples are taken in.
    pub is_frozen: bool,
    /// What is shown happened before.
    pub is_recording: bool,
    /// What the last action came to.
    pub notice: Option<String>,
    pub commands_per_second: RecentValues,
    pub round_trip_us: RecentValues,
    now: Option<Sample>,
    before: Option<Sample>,
    /// For each view, in the order of [`View::ALL`].
    lists: Vec<RowList>,
    /// Since the start of this program; and when the server answered last.
    time: Duration,
    heard: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerLink {
    Connecting,
    Up,
    /// Why there is none. It is tried again.
    Lost(String),
}

/// Where keys go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputMode {
    Normal,
    /// Into the filter of the view.
    Filter,
    /// An answer, yes or no, on ending this client.
    Confirm {
        id: u64,
        client: String,
    },
    /// All of the selected row is shown.
    Details,
    Help,
}

/// What a key asks of others than the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    None,
    /// The view changed, and with it what is asked of the server.
    Look(View),
    Kill(u64),
    /// Whether what is shown is frozen from now on.
    Freeze(bool),
    Quit,
}

/// How a view's rows are shown.
#[derive(Clone, Debug)]
pub struct RowList {
    pub sort: Sort,
    pub filter: String,
    /// The row that is selected, by what stays the same and by its place.
    id: Option<String>,
    place: usize,
}

/// The latest values, the last one last.
#[derive(Default)]
pub struct RecentValues(VecDeque<f64>);

impl TopModel {
    pub fn new(address: String, interval: Duration) -> Self {
        let list =
            |view: View| RowList { sort: view.sort(), filter: String::new(), id: None, place: 0 };
        Self {
            address,
            interval,
            link: ServerLink::Connecting,
            view: View::Overview,
            input: InputMode::Normal,
            is_frozen: false,
            is_recording: false,
            notice: None,
            commands_per_second: RecentValues::default(),
            round_trip_us: RecentValues::default(),
            now: None,
            before: None,
            lists: View::ALL.into_iter().map(list).collect(),
            time: Duration::ZERO,
            heard: Duration::ZERO,
        }
    }

    /// Takes in a sample, unless what is shown is frozen.
    pub fn take(&mut self, sample: Sample) {
        self.link = ServerLink::Up;
        self.heard = sample.at;
        self.time = self.time.max(sample.at);
        if self.is_frozen {
            return;
        }
        self.before = self.now.replace(sample);
        if let Some(change) = self.change() {
            let rate = change.rate("total_commands_processed");
            let round_trip_us = change.now.round_trip.as_secs_f64() * 1e6;
            self.commands_per_second.add(rate);
            self.round_trip_us.add(Some(round_trip_us));
        }
    }

    pub fn lose(&mut self, reason: String) {
        self.link = ServerLink::Lost(reason);
        self.before = None;
    }

    /// Time passed.
    pub fn tick(&mut self, time: Duration) {
        self.time = time;
    }

    /// For how long the server has said nothing.
    pub fn silence(&self) -> Duration {
        self.time.saturating_sub(self.heard)
    }

    /// Whether it should have said something by now.
    pub fn is_silent(&self) -> bool {
        !self.is_recording && self.silence() >= self.interval + PATIENCE
    }

    pub fn change(&self) -> Option<Change<'_>> {
        Some(Change::new(self.now.as_ref()?, self.before.as_ref()))
    }

    pub fn list(&self) -> &RowList {
        &self.lists[self.view.place()]
    }

    /// The rows of the view as they are shown. `None` before the first sample.
    pub fn table(&self) -> Option<ViewTable> {
        let mut table = self.view.table(&self.change()?);
        let list = self.list();
        table.arrange(list.sort, &list.filter);
        Some(table)
    }

    /// Which of the rows is selected; 0 without rows.
    pub fn selected(&self, table: &ViewTable) -> usize {
        let list = self.list();
        let by_id = list.id.as_ref().and_then(|id| table.rows.iter().position(|row| row.id == *id));
        by_id.unwrap_or_else(|| list.place.min(table.rows.len().saturating_sub(1)))
    }

    pub fn handle(&mut self, key: KeyPress) -> Action {
        self.notice = None;
        if key == KeyPress::Interrupt {
            return Action::Quit;
        }
        match &self.input {
            InputMode::Normal => self.handle_normal(key),
            InputMode::Filter => self.handle_filter(key),
            InputMode::Confirm { id, .. } => {
                let id = *id;
                self.input = InputMode::Normal;
                if matches!(key, KeyPress::Char('y' | 'Y')) {
                    return Action::Kill(id);
                }
                self.notice = Some("Nobody was disconnected.".into());
                Action::None
            }
            InputMode::Details | InputMode::Help => {
                self.input = InputMode::Normal;
                if key == KeyPress::Char('q') { Action::Quit } else { Action::None }
            }
        }
    }

    fn handle_normal(&mut self, key: KeyPress) -> Action {
        match key {
            KeyPress::Char('q') => return Action::Quit,
            KeyPress::Char('?') => self.input = InputMode::Help,
            KeyPress::Char(' ') => {
                self.is_frozen = !self.is_frozen;
                return Action::Freeze(self.is_frozen);
            }
            KeyPress::Char(digit @ '1'..='8') => {
                return self.show(digit as usize - '1' as usize);
            }
            KeyPress::Tab => return self.show((self.view.place() + 1) % View::ALL.len()),
            KeyPress::BackTab => {
                return self.show((self.view.place() + View::ALL.len() - 1) % View::ALL.len());
            }
            KeyPress::Char('k') => self.ask_to_kill(),
            _ if self.view == View::Overview => {}
            KeyPress::Char('/') => self.input = InputMode::Filter,
            KeyPress::Char('r') => {
                let sort = &mut self.list_mut().sort;
                sort.descends = !sort.descends;
            }
            KeyPress::Left => self.sort_by_next(false),
            KeyPress::Right => self.sort_by_next(true),
            KeyPress::Up => self.select(|place, _| place.saturating_sub(1)),
            KeyPress::Down => self.select(|place, _| place + 1),
            KeyPress::PageUp => self.select(|place, _| place.saturating_sub(PAGE_ROWS)),
            KeyPress::PageDown => self.select(|place, _| place + PAGE_ROWS),
            KeyPress::Home => self.select(|_, _| 0),
            KeyPress::End => self.select(|_, count| count),
            KeyPress::Enter if self.table().is_some_and(|table| !table.rows.is_empty()) => {
                self.input = InputMode::Details;
            }
            KeyPress::Escape => self.list_mut().filter.clear(),
            _ => {}
        }
        Action::None
    }

    fn handle_filter(&mut self, key: KeyPress) -> Action {
        let filter = &mut self.lists[self.view.place()].filter;
        match key {
            KeyPress::Char(character) if filter.chars().count() < FILTER_LEN_MAX => {
                filter.push(character);
            }
            KeyPress::Backspace => {
                filter.pop();
            }
            KeyPress::Escape => {
                filter.clear();
                self.input = InputMode::Normal;
            }
            KeyPress::Enter => self.input = InputMode::Normal,
            _ => {}
        }
        Action::None
    }

    fn show(&mut self, place: usize) -> Action {
        let view = View::ALL[place];
        if view == self.view {
            return Action::None;
        }
        self.view = view;
        Action::Look(view)
    }

    fn ask_to_kill(&mut self) {
        if self.view != View::Clients {
            self.notice = Some("Clients are listed, and disconnected, in view 4.".into());
            return;
        }
        let Some(table) = self.table() else { return };
        let Some(row) = table.rows.get(self.selected(&table)) else { return };
        let Ok(id) = row.id.parse() else { return };
        let words = row.cells[1..5].iter().map(|cell| cell.shown()).filter(|word| !word.is_empty());
        let client = Vec::from_iter(words).join(", ");
        self.list_mut().id = Some(row.id.clone());
        self.input = InputMode::Confirm { id, client };
    }

    /// From no order over the columns, and around.
    fn sort_by_next(&mut self, forward: bool) {
        let columns = self.view.columns();
        let list = self.list_mut();
        let count = columns.len() + 1;
        let now = list.sort.column.map_or(0, |column| column + 1);
        let next = (now + if forward { 1 } else { count - 1 }) % count;
        list.sort = next.checked_sub(1).map_or_else(Sort::default, |next| Sort::by(columns, next));
    }

    /// Moves the selection, given its place and the place of the last row.
    fn select(&mut self, to: impl Fn(usize, usize) -> usize) {
        let Some(table) = self.table() else { return };
        let last = table.rows.len().saturating_sub(1);
        let place = to(self.selected(&table), last).min(last);
        let list = self.list_mut();
        list.place = place;
        list.id = table.rows.get(place).map(|row| row.id.clone());
    }

    fn list_mut(&mut self) -> &mut RowList {
        &mut self.lists[self.view.place()]
    }
}

impl RecentValues {
    /// What is not known leaves no gap.
    pub fn add(&mut self, value: Option<f64>) {
        self.0.extend(value);
        while self.0.len() > HISTORY_MAX {
            self.0.pop_front();
        }
    }

    pub fn last(&self) -> Option<f64> {
        self.0.back().copied()
    }

    pub fn max(&self) -> Option<f64> {
        self.0.iter().copied().reduce(f64::max)
    }

    /// The latest `count` values, the last one last.
    pub fn latest(&self, count: usize) -> impl Iterator<Item = f64> {
        self.0.iter().skip(self.0.len().saturating_sub(count)).copied()
    }
}

/// How late an answer may be before that is shown.
const PATIENCE: Duration = Duration::from_secs(2);
const PAGE_ROWS: usize = 10;
const FILTER_LEN_MAX: usize = 64;
/// As many as the widest terminals have columns.
const HISTORY_MAX: usize = 1000;

#[cfg(test)]
pub mod tests {
    use super::super::sample::{Question, tests::of_info};
    use super::*;
    use bobbin_client::Value;

    /// A model with two samples of the text, in which all counters of `# Stats` grew.
    pub fn with_samples(before: &str, now: &str, clients: &str) -> TopModel {
        let mut model = TopModel::new("127.0.0.1:6379".into(), Duration::from_secs(1));
        for (second, text) in [(1, before), (2, now)] {
            let mut sample = of_info(second, text);
            sample.read(Question::Clients, &Value::Bulk(clients.as_bytes().to_vec()));
            model.take(sample);
        }
        model
    }

    fn press(model: &mut TopModel, keys: &str) -> Action {
        keys.chars().map(|key| model.handle(KeyPress::Char(key))).last().unwrap_or(Action::None)
    }

    const CLIENTS: &str = "id=3 addr=a:1 name=web cmd=get tot-mem=30\n\
                           id=5 addr=b:1 name=job cmd=set tot-mem=50\n\
                           id=7 addr=c:1 name=web cmd=get tot-mem=10\n";

    fn ids(model: &TopModel) -> Vec<String> {
        model.table().unwrap().rows.iter().map(|row| row.id.clone()).collect()
    }

    #[test]
    fn keys_move_between_views() {
        let mut model = TopModel::new(String::new(), Duration::ZERO);
        assert_eq!(press(&mut model, "4"), Action::Look(View::Clients));
        assert_eq!(press(&mut model, "4"), Action::None);
        assert_eq!(model.handle(KeyPress::Tab), Action::Look(View::Slow));
        assert_eq!(press(&mut model, "1"), Action::Look(View::Overview));
        assert_eq!(model.handle(KeyPress::BackTab), Action::Look(View::Info));
        assert_eq!(model.handle(KeyPress::Tab), Action::Look(View::Overview));
        assert_eq!(press(&mut model, "9x"), Action::None);
        assert_eq!(press(&mut model, "q"), Action::Quit);
        press(&mut model, "4/");
        assert_eq!(model.handle(KeyPress::Interrupt), Action::Quit);
    }

    #[test]
    fn a_client_is_ended_only_after_a_yes() {
        let mut model = with_samples("", "", CLIENTS);
        press(&mut model, "k");
        assert!(model.notice.is_some() && model.input == InputMode::Normal);
        press(&mut model, "4");
        model.handle(KeyPress::Down);
        press(&mut model, "k");
        let asked = InputMode::Confirm { id: 5, client: "b:1, job, set".into() };
        assert_eq!(model.input, asked);
        assert_eq!(press(&mut model, "n"), Action::None);
        assert_eq!(model.input, InputMode::Normal);
        press(&mut model, "k");
        assert_eq!(model.handle(KeyPress::Enter), Action::None);
        assert_eq!(press(&mut model, "ky"), Action::Kill(5));
        assert_eq!(model.input, InputMode::Normal);
    }

    #[test]
    fn the_question_stays_about_the_same_client() {
        let mut model = with_samples("", "", CLIENTS);
        press(&mut model, "4k");
        model.take(of_info(3, ""));
        assert_eq!(press(&mut model, "y"), Action::Kill(3));
    }

    #[test]
    fn sorting_and_filtering_keep_the_selection() {
        let mut model = with_samples("", "", CLIENTS);
        press(&mut model, "4");
        model.handle(KeyPress::End);
        let selected = |model: &TopModel| {
            let table = model.table().unwrap();
            table.rows[model.selected(&table)].id.clone()
        };
        assert_eq!(selected(&model), "7");
        for _ in 0..3 {
            model.handle(KeyPress::Right);
        }
        assert_eq!(model.list().sort.column, Some(8));
        assert_eq!(ids(&model), ["5", "3", "7"]);
        press(&mut model, "r");
        assert_eq!(ids(&model), ["7", "3", "5"]);
        assert_eq!(selected(&model), "7");
        press(&mut model, "/wEbx");
        model.handle(KeyPress::Backspace);
        assert_eq!(ids(&model), ["7", "3"]);
        model.handle(KeyPress::Enter);
        press(&mut model, "1");
        press(&mut model, "4");
        assert_eq!(model.list().filter, "wEb");
        press(&mut model, "/job");
        assert_eq!((ids(&model).len(), model.list().filter.as_str()), (0, "wEbjob"));
        model.handle(KeyPress::Down);
        model.handle(KeyPress::Escape);
        assert_eq!(model.input, InputMode::Normal);
        assert_eq!(ids(&model).len(), 3);
    }

    #[test]
    fn around_the_columns() {
        let mut model = with_samples("", "", "");
        press(&mut model, "7");
        for column in [Some(3), Some(2), Some(1), Some(0), None] {
            model.handle(KeyPress::Left);
            assert_eq!(model.list().sort.column, column);
        }
        model.handle(KeyPress::Right);
        assert_eq!(model.list().sort, Sort { column: Some(0), descends: true });
    }

    #[test]
    fn what_is_frozen_stays() {
        let mut model = with_samples("run_id:a", "run_id:b", "");
        press(&mut model, " ");
        model.take(of_info(3, "run_id:c"));
        assert_eq!(model.change().unwrap().now.info.text("run_id"), Some("b"));
        press(&mut model, " ");
        model.take(of_info(4, "run_id:d"));
        assert_eq!(model.change().unwrap().now.info.text("run_id"), Some("d"));
        model.tick(Duration::from_secs(9));
        assert_eq!((model.silence(), model.is_silent()), (Duration::from_secs(5), true));
        model.interval = Duration::from_secs(5);
        assert!(!model.is_silent());
    }

    #[test]
    fn histories_have_an_end() {
        let mut history = RecentValues::default();
        for value in 0..HISTORY_MAX + 5 {
            history.add(Some(value as f64));
            history.add(None);
        }
        assert_eq!(history.latest(usize::MAX).count(), HISTORY_MAX);
        assert_eq!(history.latest(2).last(), history.last());
        assert_eq!(history.max(), Some((HISTORY_MAX + 4) as f64));
    }

    #[test]
    fn no_key_does_harm_before_the_first_sample() {
        let mut model = TopModel::new(String::new(), Duration::ZERO);
        for view in View::ALL {
            model.view = view;
            for key in [
                KeyPress::Up,
                KeyPress::Down,
                KeyPress::Left,
                KeyPress::Right,
                KeyPress::PageUp,
                KeyPress::PageDown,
            ] {
                assert_eq!(model.handle(key), Action::None);
            }
            for key in [
                KeyPress::Home,
                KeyPress::End,
                KeyPress::Enter,
                KeyPress::Escape,
                KeyPress::Backspace,
            ] {
                assert_eq!(model.handle(key), Action::None);
            }
            press(&mut model, "kr/?");
            model.handle(KeyPress::Escape);
            assert_eq!(model.input, InputMode::Normal);
        }
    }
}
