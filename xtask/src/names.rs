//! One meaning per word: no two types that leave their file share a name.
//!
//! A reader who meets a type's name then knows which type it is, whatever file the name stands in.
//! Types that are private to a file are left out: their file says what they are.

use std::collections::BTreeMap;

/// The types that leave their file.
#[derive(Default)]
pub(crate) struct TypeNames {
    /// By name, the places at which a type of that name is declared: the file and the line.
    places: BTreeMap<String, Vec<(String, usize)>>,
}

impl TypeNames {
    /// Notes the types that a file declares. A file may declare one twice, for different targets.
    pub(crate) fn note(&mut self, file: &str, text: &str) {
        for (number, line) in text.lines().enumerate() {
            let Some(name) = declared(line) else { continue };
            let places = self.places.entry(name.to_owned()).or_default();
            if places.iter().all(|(other, _)| other != file) {
                places.push((file.to_owned(), number + 1));
            }
        }
    }

    /// Adds a fault for each place whose name is taken by an earlier one.
    pub(crate) fn check(&self, faults: &mut Vec<String>) {
        for (name, places) in &self.places {
            let Some(((first, first_line), others)) = places.split_first() else { continue };
            for (file, line) in others {
                faults.push(format!(
                    "{file}:{line}: {name} is a type at {first}:{first_line} too; rename one"
                ));
            }
        }
    }
}

/// The name of the type that a line declares, if the type is visible outside of its file.
fn declared(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (keyword, rest) = rest.split_once(' ')?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (KEYWORDS.contains(&keyword) && end > 0).then(|| &rest[..end])
}

const KEYWORDS: &[&str] = &["struct", "enum", "trait", "union", "type"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_leave_their_file_have_one_name_each() {
        let mut names = TypeNames::default();
        names.note("a.rs", "pub struct Part(u8);\nstruct Place;\npub(crate) enum Kind {}\n");
        names.note("b.rs", "struct Part;\npub struct Place;\n    pub(in crate::b) type Kind = u8;");
        names.note("c.rs", "\npub unsafe trait Part {}\npub fn kind() {}\npub use a::Kind;\n");
        let mut faults = Vec::new();
        names.check(&mut faults);
        let expected = [
            "b.rs:3: Kind is a type at a.rs:3 too; rename one",
            "c.rs:2: Part is a type at a.rs:1 too; rename one",
        ];
        assert_eq!(faults, expected);
    }

    #[test]
    fn a_type_may_have_a_form_for_each_target() {
        let mut names = TypeNames::default();
        names.note("a.rs", "pub struct Futex(u32);\nmod model {\n    pub struct Futex;\n}\n");
        let mut faults = Vec::new();
        names.check(&mut faults);
        assert_eq!(faults, Vec::<String>::new());
    }
}
