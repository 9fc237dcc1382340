//! What a replica asks for when it asks for a copy.

use crate::config::words;

/// What a copy must be like. Replicas that ask for the same share one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    pub parts: Parts,
}

/// The parts of the data set that a copy has (REPLCONF rdb-filter-only).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    pub keys: bool,
    pub functions: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self { keys: true, functions: true }
    }
}

impl Parts {
    /// Whether anything is left out.
    pub fn is_filtered(self) -> bool {
        self != Self::default()
    }

    /// Reads the names of the parts that are wanted. No name: nothing is.
    pub fn parse(names: &[u8]) -> Result<Self, String> {
        let names = words::split(names).ok_or("Missing rdb-filter-only values")?;
        let mut parts = Self { keys: false, functions: false };
        for name in names {
            if !name.eq_ignore_ascii_case(b"functions") {
                let name = String::from_utf8_lossy(&name);
                return Err(format!("Unsupported rdb-filter-only option: {name}"));
            }
            parts.functions = true;
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_alone_can_be_asked_for_or_nothing() {
        let functions = Parts { keys: false, functions: true };
        for names in ["functions", " Functions  functions ", "\"functions\""] {
            assert_eq!(Parts::parse(names.as_bytes()), Ok(functions));
        }
        assert_eq!(Parts::parse(b""), Ok(Parts { keys: false, functions: false }));
        let unknown = "Unsupported rdb-filter-only option: keys";
        assert_eq!(Parts::parse(b"functions keys"), Err(unknown.to_owned()));
        let missing = "Missing rdb-filter-only values";
        assert_eq!(Parts::parse(b"\"functions"), Err(missing.to_owned()));
    }
}
