//! The overview: pictures of throughput and of the round trip, facts, threads and commands.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Paragraph, Sparkline},
};

use super::{
    super::{
        change::{Change, ThreadChange},
        facts::{self, Fact, FactGroup},
        model::{RecentValues, TopModel},
        sample::Thread,
        text,
        views::View,
    },
    list, style,
};

pub fn draw(frame: &mut Frame, area: Rect, model: &TopModel, change: &Change) {
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        return draw_small(frame, area, change);
    }
    let is_tall = area.height >= HEIGHT_TALL;
    let pictures = if is_tall { area.height / 4 } else { FACTS_HEIGHT };
    let facts = if is_tall { FACTS_HEIGHT - 1 } else { 0 };
    let rows = [
        Constraint::Length(pictures.max(FACTS_HEIGHT)),
        Constraint::Length(FACTS_HEIGHT),
        Constraint::Length(facts),
        Constraint::Min(0),
    ];
    let [first, second, third, rest] = Layout::vertical(rows).areas(area);
    let thirds = [Constraint::Fill(1); 3];
    let [throughput, round_trip, load] = Layout::horizontal(thirds).areas(first);
    draw_history(frame, throughput, "commands/s", &model.commands_per_second, text::count);
    draw_history(frame, round_trip, "round trip", &model.round_trip_us, text::micros);
    draw_group(frame, load, &facts::load(change));
    let [memory, clients, keys] = Layout::horizontal(thirds).areas(second);
    draw_group(frame, memory, &facts::memory(change));
    draw_group(frame, clients, &facts::clients(change));
    draw_group(frame, keys, &facts::keys(change));
    if is_tall {
        let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(third);
        draw_group(frame, left, &facts::persistence(change));
        draw_group(frame, right, &facts::replication(change));
        let [left, right] =
            Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(rest);
        draw_threads(frame, left, change);
        draw_commands(frame, right, change);
    } else {
        let [left, middle, right] = Layout::horizontal(thirds).areas(rest);
        draw_group(frame, left, &facts::persistence(change));
        draw_group(frame, middle, &facts::replication(change));
        draw_threads(frame, right, change);
    }
}

/// Facts below each other, in as many columns as there is room for, as far as they fit.
fn draw_small(frame: &mut Frame, area: Rect, change: &Change) {
    let columns = (area.width / COLUMN_WIDTH_MIN).max(1);
    let areas = Layout::horizontal(vec![Constraint::Fill(1); usize::from(columns)]).spacing(2);
    let groups = facts::groups(change);
    let mut facts = groups.iter().flat_map(|group| &group.facts);
    for column in areas.split(area).iter() {
        let width = usize::from(column.width);
        let facts = facts.by_ref().take(usize::from(column.height));
        let lines = facts.map(|fact| line(fact, width));
        frame.render_widget(Paragraph::new(Vec::from_iter(lines)), *column);
    }
}

fn draw_group(frame: &mut Frame, area: Rect, group: &FactGroup) {
    let block = boxed(group.title.to_owned());
    let inner = block.inner(area);
    let width = usize::from(inner.width);
    let lines = group.facts.iter().map(|fact| line(fact, width));
    frame.render_widget(Paragraph::new(Vec::from_iter(lines)).block(block), area);
}

/// The label to the left, the value to the right.
fn line(fact: &Fact, width: usize) -> Line<'_> {
    let room = width.saturating_sub(text::width(fact.label) + 1);
    let value = text::fitted(&fact.value, room, true);
    Line::from(vec![
        Span::styled(fact.label, style::quiet()),
        Span::raw(" "),
        Span::styled(value, style::of_level(fact.level)),
    ])
}

fn draw_history(
    frame: &mut Frame,
    area: Rect,
    title: &str,
    history: &RecentValues,
    show: fn(f64) -> String,
) {
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), show);
    let block = boxed(format!("{title} {}", shown(history.last())));
    let block = block
        .title_bottom(Line::styled(format!(" most {} ", shown(history.max())), style::quiet()));
    let width = usize::from(block.inner(area).width);
    let values: Vec<f64> = history.latest(width).collect();
    // New values come in from the right.
    let empty = std::iter::repeat_n(None, width - values.len());
    let most = values.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let scaled = values.iter().map(|value| Some((value / most * STEPS) as u64));
    let picture = Sparkline::default().data(Vec::from_iter(empty.chain(scaled)));
    let picture = picture.max(STEPS as u64).style(style::picture()).block(block);
    frame.render_widget(picture, area);
}

/// A bar for each thread; for the busiest, if there is no room for all.
fn draw_threads(frame: &mut Frame, area: Rect, change: &Change) {
    let block = boxed("Threads".to_owned());
    let inner = block.inner(area);
    let threads = change.now.threads.iter().map(|thread| (thread, change.thread(thread)));
    let mut threads: Vec<_> = threads.collect();
    if threads.len() > usize::from(inner.height) {
        let load = |(_, changed): &(&Thread, ThreadChange)| load(changed).unwrap_or(-1.0);
        threads.sort_by(|one, two| load(two).total_cmp(&load(one)));
        threads.truncate(usize::from(inner.height));
    }
    let names = threads.iter().map(|(thread, _)| text::width(&thread.name));
    let name_width = names.max().unwrap_or(0).min(NAME_WIDTH_MAX);
    let lines = threads.iter().map(|(thread, changed)| {
        let shown = match (load(changed), changed.reads_per_second) {
            (Some(load), _) => text::percent(load),
            (None, Some(reads)) => format!("{} reads/s", text::count(reads)),
            (None, None) => "-".to_owned(),
        };
        let load = load(changed).unwrap_or(0.0);
        let room = usize::from(inner.width).saturating_sub(name_width + shown.len().max(7) + 2);
        let filled = (load.clamp(0.0, 1.0) * room as f64).round() as usize;
        Line::from(vec![
            Span::raw(text::fitted(&thread.name, name_width, false) + " "),
            Span::styled("█".repeat(filled), style::of_load(load)),
            Span::styled("·".repeat(room - filled), style::quiet()),
            Span::raw(format!(" {shown:>7}")),
        ])
    });
    frame.render_widget(Paragraph::new(Vec::from_iter(lines)).block(block), area);
}

/// What is known best of how much a thread has to do.
fn load(changed: &ThreadChange) -> Option<f64> {
    changed.load.or(changed.busy)
}

fn draw_commands(frame: &mut Frame, area: Rect, change: &Change) {
    let block = boxed("Busiest commands".to_owned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let (sort, mut table) = (View::Commands.sort(), View::Commands.table(change));
    table.arrange(sort, "");
    list::draw_rows(frame, inner, &table, sort, None);
}

fn boxed(title: String) -> Block<'static> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(style::border())
        .title(Line::styled(format!(" {title} "), style::title()))
}

/// Less has no room for boxes.
const WIDTH_MIN: u16 = 66;
/// Of facts alone.
const COLUMN_WIDTH_MIN: u16 = 29;
const HEIGHT_MIN: u16 = 19;
/// From here on there is room for the commands.
const HEIGHT_TALL: u16 = 30;
/// Six facts and a border.
const FACTS_HEIGHT: u16 = 8;
/// How finely a picture tells values apart.
const STEPS: f64 = 1000.0;
const NAME_WIDTH_MAX: usize = 16;
