//! A view that is a table: notes, titles, and the rows around the selected one.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::Line,
    widgets::{Paragraph, Wrap},
};

use super::{
    super::{
        model::TopModel,
        table::{Sort, ViewTable},
        text,
    },
    style,
};

pub fn draw(frame: &mut Frame, area: Rect, model: &TopModel, table: &ViewTable) {
    let width = usize::from(area.width);
    let notes = table.notes.iter().map(|note| lines_of(note, width)).sum::<usize>();
    let notes = u16::try_from(notes).unwrap_or(u16::MAX).min(area.height / 2);
    let rows = [Constraint::Length(notes), Constraint::Min(0)];
    let [above, below] = Layout::vertical(rows).areas(area);
    let lines = table.notes.iter().map(|note| Line::styled(note.as_str(), style::warning()));
    frame.render_widget(Paragraph::new(Vec::from_iter(lines)).wrap(Wrap { trim: true }), above);
    draw_rows(frame, below, table, model.list().sort, Some(model.selected(table)));
}

/// The titles, and as many rows as fit.
pub fn draw_rows(
    frame: &mut Frame,
    area: Rect,
    table: &ViewTable,
    sort: Sort,
    selected: Option<usize>,
) {
    if table.rows.is_empty() || area.height == 0 {
        return;
    }
    let fitted = table.fit(sort, usize::from(area.width));
    let height = usize::from(area.height - 1);
    let first = first_shown(table.rows.len(), height, selected.unwrap_or(0));
    let mut lines = vec![Line::styled(table.head(sort, &fitted), style::title())];
    for (place, row) in table.rows.iter().enumerate().skip(first).take(height) {
        let line = Line::raw(table.line(row, &fitted));
        lines.push(if selected == Some(place) { line.style(style::selected()) } else { line });
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// How many lines a text takes that is wrapped between words.
fn lines_of(text: &str, width: usize) -> usize {
    let width = width.max(1);
    let (mut lines, mut used) = (1, 0);
    for word in text.split(' ').map(text::width) {
        let fits = used == 0 || used + 1 + word <= width;
        let end = if fits && used > 0 { used + 1 + word } else { word };
        // A word that is longer than a line goes on in the next ones.
        let more = end.saturating_sub(1) / width;
        lines += usize::from(!fits) + more;
        used = end - more * width;
    }
    lines
}

/// The selected row is in the middle, but where that would leave room at an end.
fn first_shown(count: usize, height: usize, selected: usize) -> usize {
    selected.saturating_sub(height / 2).min(count.saturating_sub(height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_take_several_lines() {
        for (text, width, lines) in
            [("", 5, 1), ("ab cd", 5, 1), ("ab cde", 5, 2), ("abcdefghijk", 5, 3), ("a b", 0, 2)]
        {
            assert_eq!(lines_of(text, width), lines, "{text} {width}");
        }
    }

    #[test]
    fn the_selected_row_is_always_shown() {
        for (count, height, selected, first) in
            [(100, 10, 0, 0), (100, 10, 50, 45), (100, 10, 99, 90), (5, 10, 4, 0), (5, 0, 4, 4)]
        {
            assert_eq!(first_shown(count, height, selected), first);
        }
    }
}
