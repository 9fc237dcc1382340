//! Text from a server as a terminal may be shown it, and numbers as people read them.

use ratatui::text::Span;

/// The bytes as one line of text of at most `len_max` characters. What could command the terminal,
/// or turn the order of the text around, is shown by its number.
pub fn safe(bytes: &[u8], len_max: usize) -> String {
    let mut shown = String::new();
    let mut count = 0;
    // No character has more than four bytes, and one more tells that something is left out.
    let read = &bytes[..bytes.len().min(len_max.saturating_mul(4).saturating_add(4))];
    for chunk in read.utf8_chunks() {
        for character in chunk.valid().chars() {
            count += 1;
            if count > len_max {
                shown.push('…');
                return shown;
            }
            if !is_suspicious(character) {
                shown.push(character);
            } else if character.is_ascii() {
                shown.push_str(&format!("\\x{:02x}", u32::from(character)));
            } else {
                shown.push_str(&format!("\\u{{{:x}}}", u32::from(character)));
            }
        }
        for byte in chunk.invalid() {
            count += 1;
            if count > len_max {
                shown.push('…');
                return shown;
            }
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// How many columns of a terminal the text takes.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Span::raw(text).width() }
}

/// The text in exactly this number of columns: cut, or filled with blanks behind it, or before it
/// where it is a number.
pub fn fitted(text: &str, columns: usize, to_the_right: bool) -> String {
    let missing = columns.saturating_sub(width(text));
    let blanks = " ".repeat(missing);
    if missing > 0 || width(text) == columns {
        return if to_the_right { blanks + text } else { text.to_owned() + &blanks };
    }
    let mut cut = String::new();
    let mut used = 0;
    for character in text.chars() {
        let taken = width(character.encode_utf8(&mut [0; 4]));
        if used + taken + 1 > columns {
            break;
        }
        used += taken;
        cut.push(character);
    }
    if columns > 0 {
        cut.push('…');
        cut.push_str(&" ".repeat(columns - used - 1));
    }
    cut
}

/// Control characters, what is seen nowhere, and what changes the direction of text.
fn is_suspicious(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// `950`, `12.3k`, `4.56M`.
pub fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// `950B`, `12.3K`, `4.56M`, each 1,024 of the one before.
pub fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &["B", "K", "M", "G", "T", "P", "E"])
}

/// Microseconds: `85us`, `1.25ms`, `3.10s`.
pub fn micros(us: f64) -> String {
    match us {
        _ if us < 9.95 => format!("{us:.1}us"),
        _ if us < 999.5 => format!("{us:.0}us"),
        _ if us < 999_500.0 => format!("{}ms", digits(us / 1000.0)),
        _ => format!("{}s", digits(us / 1_000_000.0)),
    }
}

/// Seconds: `12s`, `3m 20s`, `5h 12m`, `40d 3h`.
pub fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3599 => format!("{minutes}m {}s", seconds % 60),
        3600..=86_399 => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let mut value = number;
    let mut unit = 0;
    // What is rounded to the next unit is shown in it.
    while value.abs() >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let is_whole = unit == 0 && (value.fract() == 0.0 || value.abs() >= 100.0);
    let number = if is_whole { format!("{value:.0}") } else { digits(value) };
    format!("{number}{}", units[unit])
}

/// Three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_is_shown_by_its_number() {
        for (bytes, shown) in [
            (&b"user:1"[..], "user:1"),
            (b"\x1b]0;title\x07", r"\x1b]0;title\x07"),
            (b"a\r\n\tb\x7f", r"a\x0d\x0a\x09b\x7f"),
            (b"\xff\xc2\x9b2J", r"\xff\u{9b}2J"),
            ("a\u{202e}b\u{200b}".as_bytes(), r"a\u{202e}b\u{200b}"),
            ("\u{e4}\u{4e16}".as_bytes(), "\u{e4}\u{4e16}"),
        ] {
            assert_eq!(safe(bytes, 80), shown);
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(safe(b"abcd", 4), "abcd");
        assert_eq!(safe(b"abcde", 4), "abcd…");
        assert_eq!(safe("äöüß€".as_bytes(), 4), "äöüß…");
        assert_eq!(safe(&[0xff; 100], 2), r"\xff\xff…");
        assert_eq!(safe(&b"x".repeat(1 << 20), 3), "xxx…");
        assert_eq!(safe(b"", 0), "");
    }

    #[test]
    fn text_in_columns() {
        assert_eq!(fitted("ab", 4, false), "ab  ");
        assert_eq!(fitted("ab", 4, true), "  ab");
        assert_eq!(fitted("abcd", 4, true), "abcd");
        assert_eq!(fitted("abcde", 4, false), "abc…");
        assert_eq!(fitted("世界", 3, false), "世…");
        assert_eq!(fitted("世界", 2, false), "… ");
        assert_eq!((fitted("世", 1, false), fitted("ab", 0, true)), ("…".into(), String::new()));
    }

    #[test]
    fn numbers() {
        let counts = [(0.0, "0"), (0.25, "0.25"), (999.0, "999"), (12_345.0, "12.3k")];
        for (number, shown) in counts {
            assert_eq!(count(number), shown);
        }
        assert_eq!(count(4_560_000.0), "4.56M");
        assert_eq!(count(f64::MAX).len(), count(f64::MAX).trim().len());
        assert_eq!((bytes(512.0), bytes(1536.0)), ("512B".into(), "1.50K".into()));
        assert_eq!((micros(3.21), micros(85.0)), ("3.2us".into(), "85us".into()));
        assert_eq!((micros(1250.0), micros(3.1e6)), ("1.25ms".into(), "3.10s".into()));
        assert_eq!((duration(59), duration(3661)), ("59s".into(), "1h 1m".into()));
        assert_eq!((duration(200), duration(90_000)), ("3m 20s".into(), "1d 1h".into()));
        assert_eq!(percent(0.123), "12.3%");
    }

    #[test]
    fn numbers_that_are_rounded_to_the_next_unit() {
        let counts = [(9.996, "10.0"), (99.96, "100"), (999.7, "1.00k"), (999_960.0, "1.00M")];
        for (number, shown) in counts {
            assert_eq!(count(number), shown);
        }
        assert_eq!((bytes(1023.0), bytes(1_048_300.0)), ("1023B".into(), "1.00M".into()));
        let times = [(9.97, "10us"), (999.7, "1.00ms"), (99_960.0, "100ms"), (999_700.0, "1.00s")];
        for (us, shown) in times {
            assert_eq!(micros(us), shown);
        }
    }
}
