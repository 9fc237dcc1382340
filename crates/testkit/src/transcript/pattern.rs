//! Masks for what differs from run to run.

/// Whether `line` is what `pattern` says: literal text with `<any>`, `<int>` and `<int 5..10>`.
pub(super) fn matches(pattern: &str, line: &str) -> bool {
    let Some((literal, mask, rest)) = next_mask(pattern) else { return pattern == line };
    let Some(line) = line.strip_prefix(literal) else { return false };
    match mask {
        Mask::Any => line
            .char_indices()
            .map(|(at, _)| at)
            .chain([line.len()])
            .any(|at| matches(rest, &line[at..])),
        Mask::Integer { low, high } => {
            let sign = usize::from(line.starts_with('-'));
            let digits = line[sign..].bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = line.split_at(sign + digits);
            let value = number.parse::<i64>();
            value.is_ok_and(|value| (low..=high).contains(&value)) && matches(rest, after)
        }
    }
}

/// The mask that stands for all further lines of a reply.
pub(super) const REST: &str = "<rest>";

enum Mask {
    Any,
    Integer { low: i64, high: i64 },
}

/// The text before the first mask, the mask, the text after it.
fn next_mask(pattern: &str) -> Option<(&str, Mask, &str)> {
    for (at, _) in pattern.match_indices('<') {
        let Some(end) = pattern[at..].find('>') else { break };
        let mask = match &pattern[at + 1..at + end] {
            "any" => Mask::Any,
            "int" => Mask::Integer { low: i64::MIN, high: i64::MAX },
            other => match range(other) {
                Some((low, high)) => Mask::Integer { low, high },
                None => continue,
            },
        };
        return Some((&pattern[..at], mask, &pattern[at + end + 1..]));
    }
    None
}

fn range(mask: &str) -> Option<(i64, i64)> {
    let (low, high) = mask.strip_prefix("int ")?.split_once("..")?;
    Some((low.parse().ok()?, high.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn masks_match_what_they_say() {
        assert!(matches(":<int>", ":-12"));
        assert!(matches(":<int 90..100>", ":95"));
        assert!(!matches(":<int 90..100>", ":101"));
        assert!(!matches(":<int>", ":"));
        assert!(matches("\"id=<int> addr=<any> name=x<any>\"", "\"id=3 addr=a b name=x\""));
        assert!(!matches("\"id=<int> addr=<any> name=x\"", "\"id=3 addr=a b name=y\""));
        assert!(matches("<value> is literal", "<value> is literal"));
    }
}
