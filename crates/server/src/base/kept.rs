//! Figures that take some microseconds to read, most of them from the kernel. They are kept for a
//! tenth of a second; Redis reads such figures as often.

use std::time::{Duration, Instant};

use bobbin_sync::Mutex;

/// A figure, as it was last read.
pub struct CachedFigure<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for CachedFigure<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> CachedFigure<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Copy> CachedFigure<T> {
    /// The figure, at most `KEPT` old. It is read without the lock, so two threads may read it at
    /// the same time.
    pub fn or(&self, take: impl FnOnce() -> T) -> T {
        let last = *self.0.lock();
        if let Some((_, figure)) = last.filter(|(taken, _)| taken.elapsed() < KEPT) {
            return figure;
        }
        let figure = take();
        *self.0.lock() = Some((Instant::now(), figure));
        figure
    }
}

const KEPT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_taken_again_once_it_is_old() {
        let kept = CachedFigure::new();
        assert_eq!(kept.or(|| 1), 1);
        let last = kept.0.lock().expect("it was taken").0;
        assert!(kept.or(|| 2) == 1 || last.elapsed() > KEPT);
        std::thread::sleep(KEPT);
        assert_eq!(kept.or(|| 3), 3);
    }
}
