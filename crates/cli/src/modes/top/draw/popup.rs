//! What lies over the view: questions, details, the keys.

use ratatui::{
    Frame,
    layout::{Flex, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Paragraph, Wrap},
};

use super::{
    super::{
        model::{ServerLink, TopModel},
        text,
    },
    style,
};

/// Before there is anything to show.
pub fn draw_waiting(frame: &mut Frame, area: Rect, model: &TopModel) {
    let words = match &model.link {
        ServerLink::Lost(reason) => format!("{reason}."),
        ServerLink::Connecting | ServerLink::Up => "Waiting for the server.".to_owned(),
    };
    frame.render_widget(Paragraph::new(words).wrap(Wrap { trim: true }), area);
}

pub fn draw_question(frame: &mut Frame, id: u64, client: &str) {
    let lines = vec![
        Line::raw(client.to_owned()),
        Line::raw(""),
        Line::raw("y disconnects it, any other key does not"),
    ];
    draw(frame, &format!("Disconnect client {id}?"), lines, QUESTION_WIDTH);
}

/// All cells of the selected row, in full.
pub fn draw_details(frame: &mut Frame, model: &TopModel) {
    let Some(table) = model.table() else { return };
    let Some(row) = table.rows.get(model.selected(&table)) else { return };
    let titles = table.columns.iter().map(|column| column.title);
    let width = titles.clone().map(text::width).max().unwrap_or(0);
    let line = |(title, cell): (&str, &super::super::table::TableCell)| {
        Line::from(vec![
            Span::styled(text::fitted(title, width + 2, false), style::quiet()),
            Span::raw(cell.shown().to_owned()),
        ])
    };
    let lines = titles.zip(&row.cells).map(line).collect();
    draw(frame, model.view.title(), lines, DETAILS_WIDTH);
}

pub fn draw_help(frame: &mut Frame) {
    let line = |(keys, words): &(&str, &str)| {
        Line::from(vec![
            Span::styled(text::fitted(keys, 16, false), style::title()),
            Span::raw((*words).to_owned()),
        ])
    };
    draw(frame, "Keys", KEYS.iter().map(line).collect(), HELP_WIDTH);
}

/// A box in the middle, of that width and as high as the lines, if there is room.
fn draw(frame: &mut Frame, title: &str, lines: Vec<Line>, width: u16) {
    let area = frame.area();
    let [area] = Layout::horizontal([width]).flex(Flex::Center).areas(area);
    let inner = usize::from(area.width).saturating_sub(2).max(1);
    let height = lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum::<usize>() + 2;
    let height = u16::try_from(height).unwrap_or(u16::MAX);
    let [area] = Layout::vertical([height]).flex(Flex::Center).areas(area);
    let block = Block::bordered()
        .border_type(BorderType::Double)
        .title(Line::styled(format!(" {title} "), style::title()));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

const QUESTION_WIDTH: u16 = 60;
const DETAILS_WIDTH: u16 = 100;
const HELP_WIDTH: u16 = 74;

const KEYS: &[(&str, &str)] = &[
    ("1 to 8", "show that view"),
    ("Tab, Shift-Tab", "show the next view, the one before"),
    ("Up, Down", "select a row (also Page Up, Page Down, Home, End)"),
    ("Left, Right", "sort by the column to the left, to the right"),
    ("r", "turn the order around"),
    ("/", "show only rows with some text"),
    ("Esc", "show all rows again"),
    ("Enter", "show all of the selected row"),
    ("k", "disconnect the selected client, after a question"),
    ("Space", "freeze what is shown, go on"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("load", "100% is one thread all of the time"),
    ("", "rates are since the last look, percentiles the server's"),
];
