//! Ranges of scores and of strings, as commands give them.

use std::ops::Range;

use bobbin_resp::parse_f64;
use bobbin_store::value::SortedSet;

use crate::engine::command::Failure;

/// A range of elements, which is converted to ranks.
pub(super) enum ElementBounds<'a> {
    /// The first and the last index. Negative ones count from the end.
    Ranks(i64, i64),
    Scores(Score, Score),
    Members(MemberBound<'a>, MemberBound<'a>),
}

/// An end of a range of scores.
#[derive(Clone, Copy)]
pub(super) struct Score {
    score: f64,
    excluded: bool,
}

/// An end of a range of members.
#[derive(Clone, Copy)]
pub(super) enum MemberBound<'a> {
    /// `-`: before all members.
    Lowest,
    /// `+`: behind all members.
    Highest,
    At {
        member: &'a [u8],
        excluded: bool,
    },
}

impl<'a> ElementBounds<'a> {
    pub(super) fn ranks(start: &'a [u8], stop: &'a [u8]) -> Result<Self, Failure> {
        let integer = |text| bobbin_resp::parse_i64(text).ok_or(Failure::NOT_AN_INTEGER);
        Ok(Self::Ranks(integer(start)?, integer(stop)?))
    }

    pub(super) fn scores(min: &'a [u8], max: &'a [u8]) -> Result<Self, Failure> {
        match (Score::parse(min), Score::parse(max)) {
            (Some(min), Some(max)) => Ok(Self::Scores(min, max)),
            _ => Err(NOT_SCORES),
        }
    }

    pub(super) fn members(min: &'a [u8], max: &'a [u8]) -> Result<Self, Failure> {
        match (MemberBound::parse(min), MemberBound::parse(max)) {
            (Some(min), Some(max)) => Ok(Self::Members(min, max)),
            _ => Err(NOT_MEMBERS),
        }
    }

    /// The ranks of the elements within the range. With `reverse`, indices count from the end.
    pub(super) fn find(&self, set: &SortedSet, reverse: bool) -> Range<usize> {
        let (start, end) = match *self {
            Self::Ranks(start, stop) => {
                let len = set.len();
                let range = super::super::elements::range(start, stop, len);
                if reverse {
                    (len - range.end, len - range.start)
                } else {
                    (range.start, range.end)
                }
            }
            Self::Scores(min, max) => (
                set.rank_below_score(min.score, min.excluded),
                set.rank_below_score(max.score, !max.excluded),
            ),
            Self::Members(min, max) => (min.rank(set, false), max.rank(set, true)),
        };
        start..end.max(start)
    }
}

impl Score {
    fn parse(text: &[u8]) -> Option<Self> {
        let (excluded, text) = match text {
            [b'(', text @ ..] => (true, text),
            text => (false, text),
        };
        // Unlike a score, a bound may exceed the representable range, or be empty, which means 0.
        let score = match text {
            b"" => Some(0.0),
            text => parse_f64(text).or_else(|| str::from_utf8(text).ok()?.parse().ok()),
        };
        Some(Self { score: score.filter(|score: &f64| !score.is_nan())?, excluded })
    }
}

impl<'a> MemberBound<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        match text {
            [b'-'] => Some(Self::Lowest),
            [b'+'] => Some(Self::Highest),
            [b'[', member @ ..] => Some(Self::At { member, excluded: false }),
            [b'(', member @ ..] => Some(Self::At { member, excluded: true }),
            _ => None,
        }
    }

    /// How many members are before this end of a range. The upper end is behind an included member.
    fn rank(self, set: &SortedSet, upper: bool) -> usize {
        match self {
            Self::Lowest => 0,
            Self::Highest => set.len(),
            Self::At { member, excluded } => set.rank_below_member(member, upper != excluded),
        }
    }
}

const NOT_SCORES: Failure = Failure::new(&"ERR min or max is not a float");
const NOT_MEMBERS: Failure = Failure::new(&"ERR min or max not valid string range item");
