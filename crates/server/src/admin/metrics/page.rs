//! The dashboard's page: one document with its style and its script, and the policy that lets a
//! browser run only these.

use sha2::{Digest, Sha256};

/// The page without its first figures.
pub(super) struct MetricsPage {
    /// What stands before and behind the figures.
    parts: [String; 2],
    /// The value of the field `Content-Security-Policy`.
    pub policy: String,
}

const HTML: &str = include_str!("page/dashboard.html");
const STYLE: &str = include_str!("page/dashboard.css");
/// Where the figures go.
const FIGURES: &str = "<script id=\"first-figures\" type=\"application/json\">";
/// One script in two files.
const SCRIPT: [&str; 2] = [include_str!("page/parts.js"), include_str!("page/dashboard.js")];

impl MetricsPage {
    pub(super) fn new() -> Self {
        let script = SCRIPT.concat();
        let html = HTML
            .replace("<style></style>", &format!("<style>{STYLE}</style>"))
            .replace("<script></script>", &format!("<script>{script}</script>"));
        let (before, behind) = html.split_once(FIGURES).expect("the page has a place for figures");
        let parts = [format!("{before}{FIGURES}"), behind.to_owned()];
        let (style, script) = (hash(STYLE), hash(&script));
        // Because of the last two directives, not even the page's own script can turn text into
        // HTML.
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; \
             connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        );
        Self { parts, policy }
    }

    /// The page with its first figures, a text in JSON.
    pub(super) fn with(&self, figures: &str) -> String {
        let [before, behind] = &self.parts;
        // In JSON only texts have this letter. It could end the element.
        let figures = figures.replace('<', "\\u003c");
        [before, &figures, behind].map(String::as_str).concat()
    }
}

/// The SHA-256 of a text in Base64, as a policy names allowed code.
fn hash(text: &str) -> String {
    base64(&Sha256::digest(text))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let groups = bytes.chunks(3).flat_map(|group| {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let letter = move |at: usize| char::from(LETTERS[(bits >> (18 - 6 * at)) as usize & 63]);
        // A letter for each six bits; padding follows.
        let count = group.len() + 1;
        (0..4).map(move |at| if at < count { letter(at) } else { '=' })
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_filled_up() {
        for (text, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("\0\u{7f}??", "AH8/Pw==")]
        {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    #[test]
    fn the_page_is_small_and_needs_nothing_else() {
        let page = MetricsPage::new();
        let (html, policy) = (page.with("{}"), page.policy);
        assert!(html.len() <= 100_000, "{} bytes", html.len());
        for (name, times) in [("style", 1), ("script", 2)] {
            assert_eq!(html.matches(&format!("<{name}>")).count(), 1);
            assert_eq!(html.matches(&format!("</{name}>")).count(), times);
            assert!(policy.contains(&format!("{name}-src 'sha256-")));
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(html.matches("{}</script>").count(), 1);
        for outside in ["src=\"", "@import", "url(", "style=\"", "onclick", "https://"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn figures_cannot_end_their_element() {
        let html =
            MetricsPage::new().with(r#"{"info":{"a":"</script><script>alert(1)</script>"}}"#);
        assert!(
            html.contains(r#"{"info":{"a":"\u003c/script>\u003cscript>alert(1)\u003c/script>"}}"#)
        );
        assert_eq!(html.matches("</script>").count(), 2);
    }
}
