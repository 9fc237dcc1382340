//! The model as widgets. What is drawn depends on nothing else.

mod list;
mod overview;
mod popup;
mod style;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    facts,
    model::{InputMode, ServerLink, TopModel},
    text,
    views::View,
};

pub fn draw(frame: &mut Frame, model: &TopModel) {
    let rows = [1, 1].map(Constraint::Length);
    let rows = [rows[0], rows[1], Constraint::Min(0), Constraint::Length(1)];
    let [head, tabs, body, foot] = Layout::vertical(rows).areas(frame.area());
    draw_head(frame, head, model);
    draw_tabs(frame, tabs, model.view);
    match (model.change(), model.table()) {
        (Some(change), _) if model.view == View::Overview => {
            overview::draw(frame, body, model, &change);
        }
        (Some(_), Some(table)) => list::draw(frame, body, model, &table),
        _ => popup::draw_waiting(frame, body, model),
    }
    draw_foot(frame, foot, model);
    match &model.input {
        InputMode::Normal | InputMode::Filter => {}
        InputMode::Confirm { id, client } => popup::draw_question(frame, *id, client),
        InputMode::Details => popup::draw_details(frame, model),
        InputMode::Help => popup::draw_help(frame),
    }
}

fn draw_head(frame: &mut Frame, area: Rect, model: &TopModel) {
    let heading = match model.change() {
        Some(change) => facts::heading(&change, &model.address),
        None => text::safe(model.address.as_bytes(), usize::from(area.width)),
    };
    let (state, style) = match &model.link {
        ServerLink::Connecting => ("connecting".to_owned(), style::warning()),
        ServerLink::Lost(_) => ("no answer".to_owned(), style::alarm()),
        ServerLink::Up if model.is_frozen => ("frozen".to_owned(), style::warning()),
        ServerLink::Up if model.is_silent() => {
            (format!("no answer for {}s", model.silence().as_secs()), style::alarm())
        }
        ServerLink::Up if model.is_recording => ("recorded".to_owned(), style::warning()),
        ServerLink::Up => ("live".to_owned(), style::good()),
    };
    let width = u16::try_from(text::width(&state)).unwrap_or(area.width);
    let columns = [Constraint::Min(0), Constraint::Length(width)];
    let [left, right] = Layout::horizontal(columns).spacing(1).areas(area);
    frame.render_widget(Line::styled(heading, style::title()), left);
    frame.render_widget(Line::styled(state, style), right);
}

/// Titles as far as there is room; numbers always.
fn draw_tabs(frame: &mut Frame, area: Rect, current: View) {
    let title = |view: View| format!("{} {}", view.place() + 1, view.title());
    let all: usize = View::ALL.into_iter().map(|view| text::width(&title(view)) + 1).sum();
    let is_short = all > usize::from(area.width) + 1;
    let mut spans = Vec::new();
    for view in View::ALL {
        let is_current = view == current;
        let number = (view.place() + 1).to_string();
        let shown = if is_short && !is_current { number } else { title(view) };
        let style = if is_current { style::selected() } else { style::quiet() };
        spans.extend([Span::styled(shown, style), Span::raw(" ")]);
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_foot(frame: &mut Frame, area: Rect, model: &TopModel) {
    let list = model.list();
    let line = match (&model.input, &model.notice, &model.link) {
        (InputMode::Filter, ..) => {
            Line::raw(format!("filter: {}_   Enter keeps it, Esc clears it", list.filter))
        }
        (_, Some(notice), _) => Line::styled(notice.as_str(), style::warning()),
        (_, _, ServerLink::Lost(reason)) => {
            Line::styled(format!("{reason}. Trying again."), style::alarm())
        }
        _ if model.view == View::Overview => {
            Line::styled("q quit  ? keys  1-8 or Tab views  Space freeze", style::quiet())
        }
        _ if list.filter.is_empty() => {
            let is_clients = model.view == View::Clients;
            let keys = if is_clients { CLIENT_KEYS } else { LIST_KEYS };
            Line::styled(keys, style::quiet())
        }
        _ => {
            Line::styled(format!("only with \"{}\"; Esc shows all", list.filter), style::warning())
        }
    };
    frame.render_widget(Paragraph::new(line), area);
}

const LIST_KEYS: &str = "q quit  ? keys  ↑↓ select  ←→ sort  r reverse  / filter  Enter details";
const CLIENT_KEYS: &str =
    "k disconnect  ? keys  ↑↓ select  ←→ sort  r reverse  / filter  Enter details";

#[cfg(test)]
mod tests {
    use super::super::{
        model::tests::with_samples,
        sample::{Question, Sample},
    };
    use super::*;
    use crate::keyboard::KeyPress;
    use bobbin_client::Value;
    use ratatui::{Terminal, backend::TestBackend};
    use std::time::Duration;

    const INTERVAL: Duration = Duration::from_secs(1);
    const SIZES: [(u16, u16); 5] = [(80, 24), (140, 40), (20, 5), (1, 1), (300, 3)];

    fn drawn(model: &TopModel, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer();
        let line =
            |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        Vec::from_iter((0..height).map(line)).join("\n")
    }

    fn model() -> TopModel {
        let text = |calls: u64| {
            format!(
                "redis_version:7.2.4\nbobbin_version:0.1.0\nrun_id:a\nrole:master\n\
                 uptime_in_seconds:90\nserver_time_usec:1795655300884475\nused_memory:1048576\n\
                 total_commands_processed:{calls}\nconnected_clients:2\n\
                 worker_0:connections=1,commands={calls},busy_us={}\n\
                 cmdstat_get:calls={calls},usec={},rejected_calls=0,failed_calls=0\n\
                 latency_percentiles_usec_get:p50=1.5,p99=20.1,p99.9=30\ndb0:keys=42,expires=0\n",
                calls * 20,
                calls * 3,
            )
        };
        with_samples(&text(1000), &text(26_000), "id=3 addr=10.0.0.9:5 name=web cmd=get tot-cmds=4")
    }

    #[test]
    fn every_view_at_every_size() {
        for size in SIZES {
            let mut model = TopModel::new("127.0.0.1:6379".into(), INTERVAL);
            drawn(&model, size);
            model.lose("Connection refused".into());
            drawn(&model, size);
            let mut model = self::model();
            for view in View::ALL {
                model.view = view;
                for input in [
                    InputMode::Normal,
                    InputMode::Filter,
                    InputMode::Help,
                    InputMode::Details,
                    InputMode::Confirm { id: 3, client: "10.0.0.9:5".into() },
                ] {
                    model.input = input;
                    drawn(&model, size);
                }
            }
        }
    }

    #[test]
    fn the_overview_has_what_matters() {
        let expected = ["bobbin 0.1.0", "up 1m 30s", "live", "25.0k", "150us", "1.00M", "42"];
        for size in [(80, 24), (140, 40)] {
            let shown = drawn(&model(), size);
            for words in expected {
                assert!(shown.contains(words), "{words} in\n{shown}");
            }
            assert!(shown.contains("worker 0") && shown.contains("50.0%"), "{shown}");
        }
        assert!(drawn(&model(), (140, 40)).contains("20us"));
        // Where facts stand alone they are in two columns, if there is room.
        let low = drawn(&model(), (80, 15));
        assert!(low.contains("commands/s") && low.contains("connected"), "{low}");
        let tiny = drawn(&model(), (20, 5));
        assert!(tiny.contains("1 Overview") && tiny.contains("25.0k"), "{tiny}");
    }

    #[test]
    fn lists_questions_and_notices() {
        let mut model = model();
        model.handle(KeyPress::Char('4'));
        let shown = drawn(&model, (80, 24));
        assert!(shown.contains("10.0.0.9:5") && shown.contains("commands/s▼"), "{shown}");
        model.handle(KeyPress::Char('k'));
        let asked = drawn(&model, (80, 24));
        assert!(asked.contains("Disconnect client 3?") && asked.contains("web"), "{asked}");
        model.handle(KeyPress::Char('n'));
        assert!(drawn(&model, (80, 24)).contains("Nobody was disconnected."));
        model.handle(KeyPress::Char('/'));
        model.handle(KeyPress::Char('w'));
        assert!(drawn(&model, (80, 24)).contains("filter: w_"));
        model.handle(KeyPress::Enter);
        model.handle(KeyPress::Enter);
        let details = drawn(&model, (80, 24));
        assert!(details.contains("library"), "{details}");
    }

    #[test]
    fn a_server_that_is_lost_and_one_that_is_silent() {
        let mut model = model();
        model.tick(Duration::from_secs(9));
        assert!(drawn(&model, (80, 24)).contains("no answer for 7s"));
        model.lose("Connection refused".into());
        let shown = drawn(&model, (80, 24));
        assert!(shown.contains("no answer") && shown.contains("Connection refused."));
    }

    /// Replies of pieces in an order that makes no sense.
    #[test]
    fn nonsense_is_drawn() {
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut model = TopModel::new("h:1".into(), INTERVAL);
        for second in 0..300 {
            let mut text = |count: usize| {
                Vec::from_iter((0..count).map(|_| PIECES[random(PIECES.len())])).concat()
            };
            let mut sample = Sample::new(Duration::from_secs(second / 2), Duration::MAX);
            sample.read(Question::Info, &Value::Bulk(text(200).into_bytes()));
            sample.read(Question::Clients, &Value::Bulk(text(60).into_bytes()));
            let mut bulk = || Value::Bulk(text(2).into_bytes());
            let list = |values: Vec<Value>| Value::Array(values);
            let words = list(vec![bulk(), bulk()]);
            let (most, least) = (Value::Integer(i64::MAX), Value::Integer(i64::MIN));
            let entry = vec![bulk(), most.clone(), most.clone(), words.clone(), bulk(), least];
            sample.read(Question::SlowLog, &list(vec![list(entry.clone()), words.clone()]));
            sample.read(Question::Latency, &list(vec![list(entry)]));
            let hot = vec![Value::Bulk(b"by-net-bytes".to_vec()), list(vec![bulk(), most])];
            sample.read(Question::HotKeys, &list(hot));
            model.take(sample);
            for key in [KeyPress::Tab, KeyPress::Right, KeyPress::Down, KeyPress::Enter] {
                model.handle(key);
                drawn(&model, SIZES[random(SIZES.len())]);
            }
            model.input = InputMode::Normal;
            super::super::plain::frame(&model);
        }
    }

    const PIECES: &[&str] = &[
        "\n",
        "\r\n",
        ":",
        "=",
        ",",
        " ",
        "-",
        "0",
        "1",
        "9",
        "18446744073709551615",
        "1e308",
        "-1e308",
        "nan",
        "inf",
        "run_id:a\n",
        "# Stats\n",
        "used_memory:",
        "maxmemory:",
        "calls=",
        "usec=",
        "cmdstat_",
        "get",
        "worker_",
        "busy_us=",
        "cpu_user=",
        "cpu_sys=",
        "io_thread_",
        "used_active_time_io_thread_",
        "reads=",
        "db",
        "keys=",
        "expires=",
        "avg_ttl=",
        "slave",
        "offset=",
        "role:slave\n",
        "server_time_usec:",
        "uptime_in_seconds:",
        "rdb_last_save_time:",
        "id=",
        "addr=",
        "tot-cmds=",
        "age=",
        "name=",
        "世",
        "\u{301}",
        "\u{202e}",
        "\x1b[2J",
        "total_commands_processed:",
        "keyspace_hits:",
        "keyspace_misses:",
        "p99=",
        "\0",
        "latency_percentiles_usec_",
        "used_cpu_user:",
        "used_cpu_sys:",
        "connected_clients:",
    ];

    #[test]
    fn nothing_from_a_server_commands_the_terminal() {
        let evil = "\x1b]0;x\x07\x1b[2J\u{9b}2J\u{202e}";
        let info = format!(
            "redis_version:{evil}\nrole:{evil}\nredis_mode:{evil}\nmaxmemory_policy:{evil}\n\
             rdb_last_bgsave_status:{evil}\n{evil}:{evil}\n# {evil}\n\
             slave0:ip={evil},state={evil}\n\
             cmdstat_{evil}:calls=1,usec=1\nworker_{evil}:a\nio_thread_1:clients={evil}\n"
        );
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let mut sample = Sample::new(Duration::from_secs(1), Duration::ZERO);
        sample.read(Question::Info, &bulk(&info));
        let client = format!("id=1 addr={evil} name={evil} user={evil} cmd={evil} flags={evil}");
        sample.read(Question::Clients, &bulk(&client));
        let entry = vec![
            Value::Integer(1),
            Value::Integer(1),
            Value::Integer(1),
            Value::Array(vec![bulk(evil)]),
            bulk(evil),
            bulk(evil),
        ];
        sample.read(Question::SlowLog, &Value::Array(vec![Value::Array(entry)]));
        sample.read(Question::Latency, &Value::Error(evil.as_bytes().to_vec()));
        let hot = vec![bulk("by-net-bytes"), Value::Array(vec![bulk(evil), Value::Integer(1)])];
        sample.read(Question::HotKeys, &Value::Array(hot));
        let mut model = TopModel::new(evil.into(), INTERVAL);
        model.lose(text::safe(evil.as_bytes(), 99));
        drawn(&model, (140, 40));
        model.take(sample);
        let is_evil = |character: char| {
            character.is_control() && character != '\n' || character == '\u{202e}'
        };
        for view in View::ALL {
            model.view = view;
            for input in [InputMode::Normal, InputMode::Details] {
                model.input = input;
                let shown = drawn(&model, (140, 40));
                assert!(!shown.contains(is_evil), "{view:?}: {shown:?}");
            }
            let text = super::super::plain::frame(&model);
            assert!(!text.contains(is_evil), "{text:?}");
        }
    }
}
