//! The menu of completions: a line for each below the line that is typed. Arrow keys move in it,
//! Enter takes what is marked, and typing goes on with fewer of them.

use std::io;

use rustix::termios::tcgetwinsize;

use super::completion::Suggestion;
use crate::{
    keyboard::{KeyPress, Keyboard},
    terminal,
};

/// What came of a menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One of the suggestions, taken.
    Taken(Suggestion),
    /// None; and what was typed meanwhile, behind what had been typed before.
    Typed(String),
    /// Ctrl-C, which forgets the whole line.
    Forgotten,
}

/// Whether there is room to draw one, and a terminal that can.
pub fn is_possible() -> bool {
    terminal::has_screen() && rows_of_screen() >= SCREEN_ROWS_MIN
}

/// Lets the user choose while the cursor stands where the suggestions belong. `room` is how many
/// characters may still be typed in the row; `narrow` finds the suggestions with more typed, none
/// if the menu should close.
pub fn choose(
    suggestions: Vec<Suggestion>,
    room: usize,
    narrow: impl FnMut(&str) -> Vec<Suggestion>,
) -> Choice {
    let rows = (rows_of_screen() / 2).min(ROWS_MAX);
    let mut menu = Menu { shown: suggestions, marked: 0, first: 0, rows, typed: String::new() };
    let mut keyboard = Keyboard::new(io::stdin());
    terminal::write(make_room(rows + 1).as_bytes());
    let mut narrow = narrow;
    loop {
        terminal::write(menu.picture().as_bytes());
        let key = keyboard.key().unwrap_or_default();
        if let Some(choice) = menu.handle(key.unwrap_or(KeyPress::Escape), room, &mut narrow) {
            terminal::write(ERASE.as_bytes());
            return choice;
        }
    }
}

struct Menu {
    shown: Vec<Suggestion>,
    marked: usize,
    /// The first row on the screen.
    first: usize,
    /// How many there is room for.
    rows: usize,
    /// What was typed since it opened.
    typed: String,
}

impl Menu {
    fn handle(
        &mut self,
        key: KeyPress,
        room: usize,
        narrow: &mut impl FnMut(&str) -> Vec<Suggestion>,
    ) -> Option<Choice> {
        let last = self.shown.len() - 1;
        let marked = match key {
            // As Tab does where there is no menu.
            KeyPress::Tab if last == 0 => return Some(Choice::Taken(self.shown.swap_remove(0))),
            KeyPress::Down | KeyPress::Tab if self.marked == last => 0,
            KeyPress::Down | KeyPress::Tab => self.marked + 1,
            KeyPress::Up | KeyPress::BackTab => self.marked.checked_sub(1).unwrap_or(last),
            KeyPress::PageDown => (self.marked + self.rows).min(last),
            KeyPress::PageUp => self.marked.saturating_sub(self.rows),
            KeyPress::Home => 0,
            KeyPress::End => last,
            KeyPress::Enter => return Some(Choice::Taken(self.shown.swap_remove(self.marked))),
            KeyPress::Interrupt | KeyPress::EraseLine => return Some(Choice::Forgotten),
            // There is none of them where the line editor reads.
            KeyPress::Byte(_) => self.marked,
            KeyPress::Char(character) => {
                self.typed.push(character);
                return self.follow_typing(room, narrow);
            }
            KeyPress::Backspace if self.typed.pop().is_some() => {
                return self.follow_typing(room, narrow);
            }
            KeyPress::Escape | KeyPress::Left | KeyPress::Right | KeyPress::Backspace => {
                return Some(Choice::Typed(std::mem::take(&mut self.typed)));
            }
        };
        self.mark(marked);
        None
    }

    fn follow_typing(
        &mut self,
        room: usize,
        narrow: &mut impl FnMut(&str) -> Vec<Suggestion>,
    ) -> Option<Choice> {
        self.shown = narrow(&self.typed);
        if self.shown.is_empty() || self.typed.chars().count() >= room {
            return Some(Choice::Typed(std::mem::take(&mut self.typed)));
        }
        self.mark(0);
        None
    }

    fn mark(&mut self, marked: usize) {
        self.marked = marked;
        self.first = self.first.min(marked).max((marked + 1).saturating_sub(self.rows));
    }

    /// From where the cursor stood at first, and back to behind what was typed since.
    fn picture(&self) -> String {
        let mut picture = format!("{HIDE_CURSOR}{RESTORE}");
        picture.push_str(&self.typed);
        picture.push_str("\x1b[K");
        let rows = self.shown.iter().enumerate().skip(self.first).take(self.rows);
        for (index, suggestion) in rows {
            let row = suggestion.row();
            let row = match index == self.marked {
                true => format!("\r\n\x1b[7m> {row}\x1b[0m\x1b[K"),
                false => format!("\r\n  {row}\x1b[K"),
            };
            picture.push_str(&row);
        }
        if self.shown.len() > self.rows {
            let count = format!("  {} of {}", self.marked + 1, self.shown.len());
            picture.push_str(&format!("\r\n\x1b[90m{count}\x1b[0m\x1b[K"));
        }
        // Rows that are no more wanted; then behind what was typed again.
        picture.push_str(&format!("\r\n\x1b[J{RESTORE}{}{SHOW_CURSOR}", self.typed));
        picture
    }
}

/// Has rows below the cursor, by scrolling where it must, and notes the cursor's place.
fn make_room(rows: usize) -> String {
    // One for the line behind the last row.
    let rows = rows + 1;
    format!("{}\x1b[{rows}A{SAVE}", "\x1bD".repeat(rows))
}

fn rows_of_screen() -> usize {
    tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_row.into())
}

const SAVE: &str = "\x1b7";
const RESTORE: &str = "\x1b8";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const ERASE: &str = "\x1b8\r\n\x1b[J\x1b8";
const ROWS_MAX: usize = 10;
const SCREEN_ROWS_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn menu(words: &[&str], rows: usize) -> Menu {
        let shown = words.iter().map(|word| Suggestion::of(word)).collect();
        Menu { shown, marked: 0, first: 0, rows, typed: String::new() }
    }

    #[test]
    fn keys_move_and_choose() {
        let words = ["GET", "GETBIT", "GETDEL", "GETEX"];
        let mut menu = menu(&words, 2);
        let mut narrow = |typed: &str| -> Vec<Suggestion> {
            let begun = format!("GET{}", typed.to_uppercase());
            let words = words.iter().filter(|word| word.starts_with(&begun));
            words.map(|word| Suggestion::of(word)).collect()
        };
        let mut press = |menu: &mut Menu, key| {
            let choice = menu.handle(key, 5, &mut narrow);
            assert!(choice.is_some() || menu.picture().contains("> "));
            (menu.marked, menu.first, choice)
        };
        for (key, marked, first) in [
            (KeyPress::Down, 1, 0),
            (KeyPress::Tab, 2, 1),
            (KeyPress::Up, 1, 1),
            (KeyPress::PageDown, 3, 2),
            (KeyPress::Down, 0, 0),
            (KeyPress::BackTab, 3, 2),
            (KeyPress::Home, 0, 0),
            (KeyPress::End, 3, 2),
            (KeyPress::PageUp, 1, 1),
        ] {
            assert_eq!(press(&mut menu, key), (marked, first, None), "{key:?}");
        }
        // Typing narrows, Backspace widens again, and what nothing begins with closes.
        assert_eq!(press(&mut menu, KeyPress::Char('e')), (0, 0, None));
        assert_eq!(menu.shown, [Suggestion::of("GETEX")]);
        let mut single = self::menu(&["GETEX"], 2);
        let taken = Some(Choice::Taken(Suggestion::of("GETEX")));
        assert_eq!(press(&mut single, KeyPress::Tab).2, taken);
        assert_eq!(press(&mut menu, KeyPress::Backspace), (0, 0, None));
        assert_eq!(menu.shown.len(), 4);
        press(&mut menu, KeyPress::Down);
        assert_eq!(
            press(&mut menu, KeyPress::Enter).2,
            Some(Choice::Taken(Suggestion::of("GETBIT")))
        );
    }

    #[test]
    fn what_closes_it() {
        let mut nothing = |_: &str| Vec::new();
        let mut handle = |key| menu(&["a", "b"], 2).handle(key, 5, &mut nothing);
        assert_eq!(handle(KeyPress::Escape), Some(Choice::Typed(String::new())));
        assert_eq!(handle(KeyPress::Backspace), Some(Choice::Typed(String::new())));
        assert_eq!(handle(KeyPress::Char(' ')), Some(Choice::Typed(" ".into())));
        assert_eq!(handle(KeyPress::Interrupt), Some(Choice::Forgotten));
    }
}
