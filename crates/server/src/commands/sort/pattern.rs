//! The patterns of BY and GET: keys, or fields of hashes, whose names contain the element.

use bobbin_store::ValueRef;
use bobbin_store::value::CollectionRef;
use bobbin_store::value::integer::IntegerText;

use super::lookups::Lookups;
use crate::engine::command::Data;

/// A pattern of BY or GET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SortPattern<'a> {
    /// `#`: the element itself.
    Element,
    /// Without `*`: no key.
    Nothing,
    /// The parts of the key's name around the element, and the field of a hash.
    Key { before: &'a [u8], after: &'a [u8], field: Option<&'a [u8]> },
}

impl<'a> SortPattern<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        if text == b"#" {
            return Self::Element;
        }
        let Some(star) = text.iter().position(|&byte| byte == b'*') else { return Self::Nothing };
        let (before, after) = (&text[..star], &text[star + 1..]);
        let arrow = after.windows(2).position(|two| two == b"->");
        match arrow {
            // An arrow at the end belongs to the name.
            Some(at) if at + 2 < after.len() => {
                Self::Key { before, after: &after[..at], field: Some(&after[at + 2..]) }
            }
            _ => Self::Key { before, after, field: None },
        }
    }

    pub(super) fn names_keys(self) -> bool {
        matches!(self, Self::Key { .. })
    }

    /// Calls `f` with the value that the pattern names. Without `lookups` everything that it names
    /// is locked.
    pub(super) fn look_up<R>(
        self,
        data: &mut Data,
        lookups: Option<&mut Lookups>,
        element: &[u8],
        f: impl FnOnce(Option<&[u8]>) -> R,
    ) -> R {
        let Self::Key { before, after, field } = self else {
            return f((self == Self::Element).then_some(element));
        };
        let name = [before, element, after].concat();
        let (now_ms, hasher) = (data.dead_ms(), data.keyspace().hasher());
        let key = data.key(&name);
        if let Some(lookups) = lookups
            && !lookups.hold(data, key)
        {
            return f(None);
        }
        let value = data.read(key).map(|entry| entry.value());
        match (value, field) {
            (Some(ValueRef::Bytes(bytes)), None) => f(Some(bytes)),
            (Some(ValueRef::Shared(shared)), None) => f(Some(shared)),
            (Some(ValueRef::Chunked(chunked)), None) => f(Some(&chunked.to_vec())),
            (Some(ValueRef::Collection(CollectionRef::Hash(hash))), Some(field)) => {
                let mut room = IntegerText::new(0);
                let found = hash.get(field, now_ms, hasher);
                f(found.map(|field| field.value.item().text(&mut room)))
            }
            _ => f(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_patterns_mean() {
        let key = |before, after, field| SortPattern::Key { before, after, field };
        assert_eq!(SortPattern::new(b"#"), SortPattern::Element);
        assert_eq!(SortPattern::new(b"##"), SortPattern::Nothing);
        assert_eq!(SortPattern::new(b"w_*"), key(b"w_", b"", None));
        assert_eq!(SortPattern::new(b"a*b*"), key(b"a", b"b*", None));
        assert_eq!(SortPattern::new(b"o_*->f"), key(b"o_", b"", Some(b"f")));
        assert_eq!(SortPattern::new(b"x->*_y->f->g"), key(b"x->", b"_y", Some(b"f->g")));
        assert_eq!(SortPattern::new(b"o_*->"), key(b"o_", b"->", None));
    }
}
