//! What a script has set for `cjson`.

/// What scripts can set for `cjson`. They hold until the script ends.
#[derive(Clone, Debug)]
pub(crate) struct JsonOptions {
    /// How deep tables may lie within one another.
    pub(crate) encode_depth_max: usize,
    pub(crate) decode_depth_max: usize,
    /// Digits of a number.
    pub(crate) precision: usize,
    pub(crate) keep_buffer: bool,
    pub(crate) encode_invalid: Invalid,
    pub(crate) decode_invalid: bool,
    pub(crate) sparse: Sparse,
}

/// What becomes of a number that JSON does not know: infinity, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Refused,
    AsText,
    AsNull,
}

/// When a table with holes is no list any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sparse {
    /// It becomes an object then, instead of being refused.
    pub(crate) convert: bool,
    /// With more than this many places for each element, ...
    pub(crate) ratio: usize,
    /// ... if its last place is beyond this.
    pub(crate) safe: usize,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            precision: PRECISION_MAX,
            keep_buffer: true,
            encode_invalid: Invalid::Refused,
            decode_invalid: true,
            sparse: Sparse { convert: false, ratio: 2, safe: 10 },
        }
    }
}

/// Digits of a number at most.
pub(crate) const PRECISION_MAX: usize = 14;
