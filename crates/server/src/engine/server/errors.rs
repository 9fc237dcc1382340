//! How often each kind of error was answered.

use std::collections::BTreeMap;

use bobbin_sync::Mutex;

/// How often each kind of error was answered, by its first word.
#[derive(Default)]
#[repr(align(128))]
pub struct ErrorStats {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl ErrorStats {
    /// Once errors of this many different kinds are told apart, those of scripts' own making are
    /// not any more.
    const KINDS_MAX: usize = 128;
    /// What those are counted as.
    const OTHERS: &'static str = "ERRORSTATS_OVERFLOW";

    /// An error of ours, of which there are few kinds.
    #[cold]
    pub fn count(&self, code: &str) {
        Self::add(&mut self.counts.lock(), code);
    }

    /// An error that a script made up.
    #[cold]
    pub fn count_custom(&self, code: &str) {
        let mut counts = self.counts.lock();
        let is_known = counts.len() < Self::KINDS_MAX || counts.contains_key(code);
        Self::add(&mut counts, if is_known { code } else { Self::OTHERS });
    }

    fn add(counts: &mut BTreeMap<String, u64>, code: &str) {
        match counts.get_mut(code) {
            Some(count) => *count += 1,
            None => {
                counts.insert(code.to_owned(), 1);
            }
        }
    }

    pub fn all(&self) -> Vec<(String, u64)> {
        self.counts.lock().iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    pub fn reset(&self) {
        self.counts.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_errors_are_told_apart_up_to_a_limit() {
        let errors = ErrorStats::default();
        for number in 1..=1100 {
            errors.count_custom(&number.to_string());
        }
        errors.count("ERR");
        errors.count_custom("1");
        let all: BTreeMap<_, _> = errors.all().into_iter().collect();
        assert_eq!((all["1"], all["128"], all["ERR"]), (2, 1, 1));
        assert_eq!(all[ErrorStats::OTHERS], 972);
        assert_eq!(all.len(), 130);
    }
}
