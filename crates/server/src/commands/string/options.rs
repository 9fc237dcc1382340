//! The options that SET, GETEX and MSETEX share: when to write, and what happens to the expiry.

use bobbin_store::shard::Expire;

use crate::engine::command::{Call, Failure};

/// When a key is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteCondition<'a> {
    Always,
    /// NX
    Absent,
    /// XX
    Present,
    /// IFEQ
    Equal(&'a [u8]),
}

/// What happens to the expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExpiryChange<'a> {
    /// No option was given.
    Unsaid,
    /// KEEPTTL
    Keep,
    /// PERSIST
    Persist,
    /// EX, PX, EXAT or PXAT and the number behind it, which was not parsed yet.
    Time(TimeUnit, &'a [u8]),
}

/// The meaning of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

/// All options behind the keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StringOptions<'a> {
    pub condition: WriteCondition<'a>,
    pub expiry: ExpiryChange<'a>,
    /// GET
    pub get: bool,
}

/// Which options a command knows, beside the four times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionGrammar {
    Set,
    GetEx,
    MSetEx,
}

impl<'a> StringOptions<'a> {
    /// Parses the options. An option may be repeated, and the last one counts. Contradictory or
    /// unknown options are syntax errors.
    pub(super) fn parse(words: &[&'a [u8]], grammar: OptionGrammar) -> Result<Self, Failure> {
        let mut options =
            Self { condition: WriteCondition::Always, expiry: ExpiryChange::Unsaid, get: false };
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            options.take(word, &mut words, grammar).ok_or(Failure::SYNTAX)?;
        }
        Ok(options)
    }

    fn take(
        &mut self,
        word: &[u8],
        rest: &mut impl Iterator<Item = &'a [u8]>,
        grammar: OptionGrammar,
    ) -> Option<()> {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if let Some(unit) = TimeUnit::named(word) {
            let same = matches!(self.expiry, ExpiryChange::Time(before, _) if before == unit);
            if self.expiry != ExpiryChange::Unsaid && !same {
                return None;
            }
            self.expiry = ExpiryChange::Time(unit, rest.next()?);
        } else if grammar == OptionGrammar::GetEx {
            if !is(b"PERSIST")
                || !matches!(self.expiry, ExpiryChange::Unsaid | ExpiryChange::Persist)
            {
                return None;
            }
            self.expiry = ExpiryChange::Persist;
        } else if is(b"KEEPTTL") && matches!(self.expiry, ExpiryChange::Unsaid | ExpiryChange::Keep)
        {
            self.expiry = ExpiryChange::Keep;
        } else if is(b"NX")
            && matches!(self.condition, WriteCondition::Always | WriteCondition::Absent)
        {
            self.condition = WriteCondition::Absent;
        } else if is(b"XX")
            && matches!(self.condition, WriteCondition::Always | WriteCondition::Present)
        {
            self.condition = WriteCondition::Present;
        } else if grammar == OptionGrammar::Set && is(b"GET") {
            self.get = true;
        } else if grammar == OptionGrammar::Set
            && is(b"IFEQ")
            && self.condition == WriteCondition::Always
        {
            self.condition = WriteCondition::Equal(rest.next()?);
        } else {
            return None;
        }
        Some(())
    }
}

impl TimeUnit {
    fn named(word: &[u8]) -> Option<Self> {
        const NAMES: [(&[u8], TimeUnit); 4] = [
            (b"EX", TimeUnit::Seconds),
            (b"PX", TimeUnit::Milliseconds),
            (b"EXAT", TimeUnit::UnixSeconds),
            (b"PXAT", TimeUnit::UnixMilliseconds),
        ];
        NAMES.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, unit)| unit)
    }

    /// The Unix time in milliseconds that a number means. Fails if it is not a number or out of
    /// range.
    pub(super) fn expire_ms(self, number: &[u8], call: &Call<'_>) -> Result<i64, Failure> {
        let number = bobbin_resp::parse_i64(number).ok_or(Failure::NOT_AN_INTEGER)?;
        self.unix_ms(number, call.data.conditions.now_ms).ok_or_else(|| {
            let name = &call.command.full_name;
            Failure::format(format!("ERR invalid expire time in '{name}' command"))
        })
    }

    fn unix_ms(self, number: i64, now_ms: i64) -> Option<i64> {
        if number <= 0 {
            return None;
        }
        match self {
            Self::Seconds => number.checked_mul(1000)?.checked_add(now_ms),
            Self::Milliseconds => number.checked_add(now_ms),
            Self::UnixSeconds => number.checked_mul(1000),
            Self::UnixMilliseconds => Some(number),
        }
    }
}

impl ExpiryChange<'_> {
    /// What it means for a key that is written.
    pub(super) fn resolve(self, call: &Call<'_>) -> Result<Expire, Failure> {
        Ok(match self {
            Self::Unsaid | Self::Persist => Expire::Clear,
            Self::Keep => Expire::Keep,
            Self::Time(unit, number) => Expire::At(unit.expire_ms(number, call)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &'static str, grammar: OptionGrammar) -> Option<StringOptions<'static>> {
        let words: Vec<&[u8]> = line.split_ascii_whitespace().map(str::as_bytes).collect();
        StringOptions::parse(&words, grammar).ok()
    }

    // The results of valkey-server 9.1.2.
    #[test]
    fn options_combine_as_in_valkey() {
        let last = ExpiryChange::Time(TimeUnit::Seconds, b"20");
        let options = parse("ex 10 EX 20 get GET xx XX", OptionGrammar::Set).unwrap();
        assert_eq!(
            options,
            StringOptions { condition: WriteCondition::Present, expiry: last, get: true }
        );
        let options = parse("ifeq a keepttl keepttl", OptionGrammar::Set).unwrap();
        assert_eq!(options.condition, WriteCondition::Equal(b"a"));
        assert_eq!(options.expiry, ExpiryChange::Keep);
        assert_eq!(
            parse("persist persist", OptionGrammar::GetEx).unwrap().expiry,
            ExpiryChange::Persist
        );
        assert_eq!(
            parse("nx pxat 5", OptionGrammar::MSetEx).unwrap().condition,
            WriteCondition::Absent
        );
        for line in [
            "ex",
            "ex 10 px 10",
            "nx xx",
            "xx nx",
            "ifeq",
            "ifeq a ifeq a",
            "ifeq a nx",
            "nx ifeq a",
            "ex 10 keepttl",
            "keepttl px 10",
            "persist",
            "nonsense",
            "exat 1 ex 1",
        ] {
            assert_eq!(parse(line, OptionGrammar::Set), None, "{line}");
        }
        for line in ["get", "nx", "keepttl", "ifeq a", "persist ex 1", "ex 1 persist"] {
            assert_eq!(parse(line, OptionGrammar::GetEx), None, "{line}");
        }
        for line in ["get", "ifeq a", "persist", "keepttl ex 1"] {
            assert_eq!(parse(line, OptionGrammar::MSetEx), None, "{line}");
        }
    }

    #[test]
    fn times_out_of_range_are_refused() {
        let now_ms = 1_000;
        assert_eq!(TimeUnit::Seconds.unix_ms(2, now_ms), Some(3_000));
        assert_eq!(TimeUnit::Milliseconds.unix_ms(2, now_ms), Some(1_002));
        assert_eq!(TimeUnit::UnixSeconds.unix_ms(2, now_ms), Some(2_000));
        assert_eq!(TimeUnit::UnixMilliseconds.unix_ms(i64::MAX, now_ms), Some(i64::MAX));
        for unit in [TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::UnixSeconds] {
            assert_eq!(unit.unix_ms(i64::MAX, now_ms), None);
            assert_eq!(unit.unix_ms(0, now_ms), None);
            assert_eq!(unit.unix_ms(-1, now_ms), None);
        }
    }
}
