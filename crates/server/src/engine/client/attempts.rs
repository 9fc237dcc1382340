//! What others have learned of a script's run. If the script begins anew, it does the same again,
//! which is neither shown nor counted a second time.

/// The attempts to run a script.
#[derive(Clone, Copy, Default)]
pub struct ScriptAttempts {
    /// The lines that monitors see of it.
    pub lines: AttemptProgress,
    /// The commands that it calls, as the statistics count them.
    pub calls: AttemptProgress,
}

/// How far an attempt has come with something that each attempt does again.
#[derive(Clone, Copy, Default)]
pub struct AttemptProgress {
    /// How often this attempt has done it.
    done: u32,
    /// How often this attempt will do it that an earlier one did already.
    again: u32,
}

impl ScriptAttempts {
    /// Notes that an attempt begins.
    pub const fn begin(&mut self) {
        (self.lines.done, self.calls.done) = (0, 0);
    }

    /// What the next attempt begins with.
    pub const fn anew(self) -> Self {
        Self { lines: self.lines.anew(), calls: self.calls.anew() }
    }
}

impl AttemptProgress {
    /// Whether an earlier attempt did already what comes next.
    pub const fn is_repeat(self) -> bool {
        self.again > 0
    }

    /// Notes that it is done once more.
    pub const fn add(&mut self) {
        self.done = self.done.saturating_add(1);
        self.again = self.again.saturating_sub(1);
    }

    const fn anew(self) -> Self {
        Self { done: 0, again: self.done.saturating_add(self.again) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_beyond_earlier_attempts_is_new() {
        let mut attempts = ScriptAttempts::default();
        let mut new = Vec::new();
        for calls in [3, 1, 5] {
            attempts.begin();
            let mut count = 0;
            for _ in 0..calls {
                count += u32::from(!attempts.calls.is_repeat());
                attempts.calls.add();
            }
            new.push(count);
            attempts = attempts.anew();
        }
        assert_eq!(new, [3, 0, 2]);
        assert!(!attempts.lines.is_repeat());
    }
}
