//! The options of SORT.

use std::ops::Range;
use std::sync::Arc;

use bobbin_resp::parse_i64;

use super::elements::{Ordering, SortSource};
use super::pattern::SortPattern;
use crate::base::locale::Collation;
use crate::config::Config;
use crate::engine::command::Failure;

/// The options of one SORT.
pub(super) struct SortOptions<'a> {
    pub descending: bool,
    pub alpha: bool,
    /// The elements keep their order: BY names no key that depends on them.
    pub unsorted: bool,
    pub by: Option<&'a [u8]>,
    pub get: Vec<&'a [u8]>,
    /// The argument that names the destination.
    pub store: Option<usize>,
    /// The order of texts. `None`: the order of their bytes.
    pub collation: Option<Arc<Collation>>,
    offset: i64,
    /// Negative: all elements.
    count: i64,
}

impl<'a> SortOptions<'a> {
    pub(super) fn parse(args: &[&'a [u8]], may_store: bool) -> Result<Self, Failure> {
        let mut options = Self {
            descending: false,
            alpha: false,
            unsorted: false,
            by: None,
            get: Vec::new(),
            store: None,
            collation: None,
            offset: 0,
            count: -1,
        };
        let mut at = 2;
        while let Some(word) = args.get(at) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let more = args.len() - at - 1;
            let number = |at: usize| parse_i64(args[at]).ok_or(Failure::NOT_AN_INTEGER);
            if is("asc") {
                options.descending = false;
            } else if is("desc") {
                options.descending = true;
            } else if is("alpha") {
                options.alpha = true;
            } else if is("limit") && more >= 2 {
                (options.offset, options.count) = (number(at + 1)?, number(at + 2)?);
                at += 2;
            } else if is("store") && may_store && more >= 1 {
                options.store = Some(at + 1);
                at += 1;
            } else if is("by") && more >= 1 {
                options.by = Some(args[at + 1]);
                options.unsorted |= !args[at + 1].contains(&b'*');
                at += 1;
            } else if is("get") && more >= 1 {
                options.get.push(args[at + 1]);
                at += 1;
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }

    /// Sets the order of texts from the configuration, if texts are compared.
    pub(super) fn collate(&mut self, config: &Config) {
        let locale = config.locale_collate();
        if self.alpha && !self.unsorted && !locale.is_empty() {
            self.collation = Collation::of_locale(&locale);
        }
    }

    /// Whether it reads keys that the elements name.
    pub(super) fn needs_other_keys(&self) -> bool {
        let by = self.by.filter(|_| !self.unsorted);
        by.iter().chain(&self.get).any(|pattern| SortPattern::new(pattern).names_keys())
    }

    /// A copy that does not borrow the arguments, without the destination.
    pub(super) fn owned(&self) -> Owned {
        let Self { descending, alpha, unsorted, offset, count, .. } = *self;
        let (by, get, store) = (None, Vec::new(), None);
        let collation = self.collation.clone();
        Owned {
            plain: SortOptions {
                descending,
                alpha,
                unsorted,
                by,
                get,
                store,
                collation,
                offset,
                count,
            },
            by: self.by.map(Box::from),
            get: self.get.iter().copied().map(Box::from).collect(),
        }
    }

    /// The range of wanted elements, out of `len`.
    pub(super) fn range(&self, len: usize) -> Range<usize> {
        let len = len as i64;
        let start = self.offset.clamp(0, len);
        let count = if self.count < 0 { len } else { self.count.min(len) };
        start as usize..(start + count).min(len) as usize
    }

    /// Whether the elements keep the source's order, so that only the wanted ones are looked at.
    pub(super) const fn copies(&self, source: &SortSource) -> bool {
        self.unsorted && !matches!(source, SortSource::Set(_))
    }

    pub(super) fn ordering(&self) -> Ordering {
        let by_weight = self.by.is_some() || self.collation.is_some();
        Ordering { descending: self.descending, alpha: self.alpha, by_weight }
    }
}

/// Options that outlive their command.
pub(super) struct Owned {
    plain: SortOptions<'static>,
    by: Option<Box<[u8]>>,
    get: Vec<Box<[u8]>>,
}

impl Owned {
    pub(super) fn borrow(&self) -> SortOptions<'_> {
        let get = self.get.iter().map(|pattern| &**pattern).collect();
        SortOptions { by: self.by.as_deref(), get, ..self.plain.owned().plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<R>(line: &str, f: impl FnOnce(Result<SortOptions<'_>, Failure>) -> R) -> R {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        f(SortOptions::parse(&args, true))
    }

    #[test]
    fn the_last_store_counts_and_words_may_be_names() {
        let store = |line| with(line, |options| options.ok().and_then(|options| options.store));
        assert_eq!(store("sort a store by store c"), Some(5));
        assert_eq!(store("sort a get store by store store store"), Some(7));
        assert_eq!(store("sort a store"), None);
    }

    #[test]
    fn ranges() {
        let range =
            |line, len| with(line, |options| options.ok().map(|options| options.range(len)));
        assert_eq!(range("sort a", 5), Some(0..5));
        assert_eq!(range("sort a limit 2 2", 5), Some(2..4));
        assert_eq!(range("sort a limit -3 9223372036854775807", 5), Some(0..5));
        assert_eq!(range("sort a limit 9223372036854775807 1", 5), Some(5..5));
        assert_eq!(range("sort a limit 1 0", 5), Some(1..1));
        assert_eq!(range("sort a limit 1 -7", 5), Some(1..5));
    }

    #[test]
    fn which_need_other_keys() {
        let needs = |line| with(line, |o| o.is_ok_and(|options| options.needs_other_keys()));
        assert!(needs("sort a by w_*") && needs("sort a by x get o_*->f") && needs("sort a get *"));
        assert!(
            !needs("sort a by x get #") && !needs("sort a get x") && !needs("sort a by w_* by x")
        );
    }
}
