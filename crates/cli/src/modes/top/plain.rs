//! One look at the server as text, where there is no terminal to draw on.

use super::{facts, model::TopModel, views::View};

/// The facts, and the first rows of each list but the fields of INFO.
pub fn frame(model: &TopModel) -> String {
    let Some(change) = model.change() else { return String::new() };
    let mut text = format!("{}\n", facts::heading(&change, &model.address));
    for group in facts::groups(&change) {
        text.push_str(&format!("\n{}\n", group.title));
        for fact in &group.facts {
            text.push_str(&format!("  {:LABEL_WIDTH$}{}\n", fact.label, fact.value));
        }
    }
    for view in View::ALL {
        if matches!(view, View::Overview | View::Info) {
            continue;
        }
        let mut table = view.table(&change);
        let sort = view.sort();
        table.arrange(sort, "");
        text.push_str(&format!("\n{}\n", view.title()));
        for note in &table.notes {
            text.push_str(&format!("  {note}\n"));
        }
        if table.rows.is_empty() {
            continue;
        }
        let fitted = table.fit(sort, WIDTH);
        text.push_str(&format!("  {}\n", table.head(sort, &fitted).trim_end()));
        for row in table.rows.iter().take(ROWS) {
            text.push_str(&format!("  {}\n", table.line(row, &fitted).trim_end()));
        }
        if let Some(more) = table.rows.len().checked_sub(ROWS).filter(|more| *more > 0) {
            text.push_str(&format!("  and {more} more\n"));
        }
    }
    text
}

const LABEL_WIDTH: usize = 18;
const WIDTH: usize = 118;
const ROWS: usize = 10;

#[cfg(test)]
mod tests {
    use super::super::model::tests::with_samples;
    use super::*;

    #[test]
    fn a_frame_of_text() {
        let clients: String = (1..=12).map(|id| format!("id={id} addr=a:{id}\n")).collect();
        let model = with_samples(
            "run_id:a\ntotal_commands_processed:5\n",
            "run_id:a\ntotal_commands_processed:55\n",
            &clients,
        );
        let text = frame(&model);
        assert!(text.starts_with("a server  127.0.0.1:6379\n\nLoad\n  commands/s        50\n"));
        assert!(text.contains("\n  and 2 more\n"), "{text}");
        assert!(text.contains("INFO has no section commandstats."), "{text}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    }
}
