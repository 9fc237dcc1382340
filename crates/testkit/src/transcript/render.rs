//! Replies as lines of text that no other reply shares.

use super::text::escape;
use crate::ReplyFrame;
use crate::reply::is_map;

/// The lines of a reply; the first is not indented, the others are.
pub fn render(reply: &ReplyFrame) -> Vec<String> {
    let mut lines = Vec::new();
    render_at(reply, 0, &mut lines);
    lines
}

fn render_at(reply: &ReplyFrame, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let ReplyFrame::Aggregate { kind, items } = reply else {
        lines.push(format!("{indent}{}", scalar(reply)));
        return;
    };
    let count = if is_map(*kind) { items.len() / 2 } else { items.len() };
    let head = format!("{indent}{}{count}", char::from(*kind));
    if items.iter().all(fits_inline) {
        let line = items.iter().fold(head.clone(), |line, item| line + " " + &scalar(item));
        if line.len() <= INLINE_COLUMNS {
            lines.push(line);
            return;
        }
    }
    lines.push(head);
    for item in items {
        render_at(item, depth + 1, lines);
    }
}

/// A text with a space would read as two elements.
fn fits_inline(item: &ReplyFrame) -> bool {
    match item {
        ReplyFrame::Line { text, .. } => !text.contains(&b' '),
        ReplyFrame::Aggregate { .. } => false,
        ReplyFrame::Bulk { .. } | ReplyFrame::Null { .. } => true,
    }
}

fn scalar(reply: &ReplyFrame) -> String {
    match reply {
        ReplyFrame::Line { kind, text } => {
            // Nothing delimits these texts: quotes can stay, a space at the end cannot be seen.
            let text = escape(text).replace("\\\"", "\"");
            let visible = text.strip_suffix(' ').map(|start| format!("{start}\\x20"));
            format!("{}{}", char::from(*kind), visible.unwrap_or(text))
        }
        ReplyFrame::Bulk { kind: b'$', bytes } => format!("\"{}\"", escape(bytes)),
        ReplyFrame::Bulk { kind, bytes } => format!("{}\"{}\"", char::from(*kind), escape(bytes)),
        ReplyFrame::Null { kind } => format!("{}-1", char::from(*kind)),
        ReplyFrame::Aggregate { .. } => unreachable!("callers ask for scalars only"),
    }
}

const INLINE_COLUMNS: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_replies_take_one_line_and_nested_ones_are_indented() {
        let flat =
            ReplyFrame::array(vec![ReplyFrame::bulk("a\n"), ReplyFrame::Null { kind: b'$' }]);
        assert_eq!(render(&flat), [r#"*2 "a\n" $-1"#]);
        let nested = ReplyFrame::array(vec![ReplyFrame::integer(1), flat]);
        assert_eq!(render(&nested), ["*2", "  :1", r#"  *2 "a\n" $-1"#]);
    }

    #[test]
    fn texts_with_spaces_are_not_joined() {
        let one = ReplyFrame::array(vec![ReplyFrame::simple("a +b")]);
        let two = ReplyFrame::array(vec![ReplyFrame::simple("a"), ReplyFrame::simple("b")]);
        assert_ne!(render(&one), render(&two));
        assert_eq!(render(&one).len(), 2);
    }
}
