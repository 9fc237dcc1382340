//! A progress bar on a terminal, and nothing anywhere else.

use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// How far something long has come.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Towards a known end.
    pub fn towards(total: u64, unit: &'static str) -> Self {
        Self::new(Some(total), &format!("{{bar:30}} {{pos}} of {{len}} {unit}, {{eta}} left"))
    }

    /// Without a known end.
    pub fn counter(unit: &'static str) -> Self {
        Self::new(None, &format!("{{spinner}} {{pos}} {unit}, {{per_sec}}"))
    }

    /// Bytes, towards a known end or not.
    pub fn bytes(total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left",
            None => "{spinner} {bytes}, {binary_bytes_per_sec}",
        };
        Self::new(total, template)
    }

    fn new(total: Option<u64>, template: &str) -> Self {
        let bar = terminal::shows_progress().then(|| {
            let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            let style = ProgressStyle::with_template(template);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar }
    }

    pub fn set(&self, position: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
        }
    }

    /// Prints to the standard output, above the bar.
    pub fn print(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| out!("{text}")),
            None => out!("{text}"),
        }
    }

    /// Prints a line to the standard error, above the bar.
    pub fn print_error(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| complain!("{text}")),
            None => complain!("{text}"),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
