//! Sets of named bits.

/// Defines a set of named bits.
macro_rules! bits {
    ($(#[$doc:meta])* $type:ident : $repr:ty { $($(#[$bit_doc:meta])* $bit:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $type($repr);

        impl $type {
            pub const NONE: Self = Self(0);
            bits!(@bits $type, 0, $($(#[$bit_doc])* $bit)*);
            /// Every bit with its name, in the order of definition. Bits without a name have "".
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$bit, $name),)*];

            #[inline(always)]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            pub const fn bits(self) -> $repr {
                self.0
            }

            pub const fn of_bits(bits: $repr) -> Self {
                Self(bits)
            }

            /// The names of the bits that are set.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |(bit, n)| self.has(*bit) && !n.is_empty()).map(|(_, n)| *n)
            }
        }

        impl std::ops::BitOr for $type {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }
    };
    (@bits $type:ident, $at:expr, $(#[$doc:meta])* $bit:ident $($rest:tt)*) => {
        $(#[$doc])* pub const $bit: Self = Self(1 << ($at));
        bits!(@bits $type, $at + 1, $($rest)*);
    };
    (@bits $type:ident, $at:expr,) => {};
}

pub(crate) use bits;
