//! Text as lines of limited width.

/// The words of a text in lines of at most `width` characters, one blank between them. A word that
/// is wider has a line of its own.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut room = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        match lines.last_mut() {
            Some(line) if len < room => {
                line.push(' ');
                line.push_str(word);
                room -= 1 + len;
            }
            _ => {
                lines.push(word.to_owned());
                room = width.saturating_sub(len);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_filled() {
        assert_eq!(wrapped("", 5), [""; 0]);
        assert_eq!(wrapped("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(wrapped(" ab  cde\nf ", 5), ["ab", "cde f"]);
        assert_eq!(wrapped("äö üß a", 5), ["äö üß", "a"]);
        assert_eq!(wrapped("a longest b", 5), ["a", "longest", "b"]);
    }
}
