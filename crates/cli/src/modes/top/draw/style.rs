//! The few styles there are. What somebody should look at differs without colours, too.

use ratatui::style::{Color, Modifier, Style};

use super::super::facts::Severity;

pub fn title() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub fn quiet() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

pub fn border() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

pub fn good() -> Style {
    Style::new().fg(Color::Green)
}

pub fn warning() -> Style {
    Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD)
}

pub fn alarm() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
}

pub fn selected() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

pub fn picture() -> Style {
    Style::new().fg(Color::Cyan)
}

pub fn of_level(level: Severity) -> Style {
    match level {
        Severity::Calm => Style::new(),
        Severity::Warning => warning(),
        Severity::Alarm => alarm(),
    }
}

/// By how busy a thread is.
pub fn of_load(load: f64) -> Style {
    match load {
        _ if load >= 0.9 => Style::new().fg(Color::Red),
        _ if load >= 0.7 => Style::new().fg(Color::Yellow),
        _ => good(),
    }
}
