//! The names that users know ciphers by: OpenSSL's, of its manual `ciphers(1)`.

use rustls::{CipherSuite, SupportedCipherSuite};

/// What becomes of a name in a list for which there is no cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// It is passed over as long as there are others, as OpenSSL does.
    PassOver,
    /// It is an error.
    Refuse,
}

/// Leaves the suites that the lists name, in their order; one of which nothing is left is an error.
/// A `-` or `!` before a name takes a suite out again.
pub fn choose_suites(
    suites: &mut Vec<SupportedCipherSuite>,
    version_1_2: Option<&str>,
    version_1_3: Option<&str>,
    unknown: Unknown,
) -> Result<(), String> {
    let (new, old): (Vec<_>, Vec<_>) = suites.iter().partition(|suite| suite.tls13().is_some());
    *suites = of_list(new, version_1_3, unknown)?;
    suites.extend(of_list(old, version_1_2, unknown)?);
    Ok(())
}

fn of_list(
    all: Vec<SupportedCipherSuite>,
    list: Option<&str>,
    unknown: Unknown,
) -> Result<Vec<SupportedCipherSuite>, String> {
    let Some(list) = list else { return Ok(all) };
    let mut chosen: Vec<SupportedCipherSuite> = Vec::new();
    let there_are = || {
        let names: Vec<_> = all.iter().filter_map(|suite| name(suite.suite())).collect();
        names.join(", ")
    };
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let (is_out, word) = match word.strip_prefix(['-', '!']) {
            Some(word) => (true, word),
            None => (false, word),
        };
        let everything = EVERYTHING.contains(&word);
        let is_meant =
            |suite: &SupportedCipherSuite| everything || name(suite.suite()) == Some(word);
        if is_out {
            chosen.retain(|suite| !is_meant(suite));
            continue;
        }
        if unknown == Unknown::Refuse && !all.iter().any(is_meant) {
            return Err(format!("There is no cipher '{word}', but {}", there_are()));
        }
        for suite in all.iter().filter(|suite| is_meant(suite)) {
            if !chosen.contains(suite) {
                chosen.push(*suite);
            }
        }
    }
    if chosen.is_empty() {
        return Err(format!("None of the ciphers '{list}' is there, but {}", there_are()));
    }
    Ok(chosen)
}

fn name(suite: CipherSuite) -> Option<&'static str> {
    Some(match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "ECDHE-ECDSA-CHACHA20-POLY1305"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => return None,
    })
}

/// Words of OpenSSL's that hold for all we have.
const EVERYTHING: [&str; 3] = ["ALL", "DEFAULT", "HIGH"];

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;

    fn chosen(ciphers: Option<&str>, suites: Option<&str>) -> Result<Vec<&'static str>, String> {
        let mut all = ALL_CIPHER_SUITES.to_vec();
        choose_suites(&mut all, ciphers, suites, Unknown::PassOver)?;
        Ok(all.iter().map(|suite| name(suite.suite()).expect("every suite has a name")).collect())
    }

    #[test]
    fn lists_choose_and_order() {
        assert_eq!(chosen(None, None).unwrap().len(), ALL_CIPHER_SUITES.len());
        let both = chosen(
            Some("AES128-SHA:ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256"),
            Some("TLS_AES_128_GCM_SHA256"),
        );
        assert_eq!(
            both.unwrap(),
            [
                "TLS_AES_128_GCM_SHA256",
                "ECDHE-RSA-CHACHA20-POLY1305",
                "ECDHE-RSA-AES128-GCM-SHA256"
            ]
        );
        assert_eq!(chosen(Some("HIGH:!aNULL"), None).unwrap().len(), ALL_CIPHER_SUITES.len());
        assert_eq!(
            chosen(Some("DEFAULT:-ECDHE-RSA-AES128-GCM-SHA256:!RC4"), None).unwrap().len(),
            ALL_CIPHER_SUITES.len() - 1
        );
        let mut all = ALL_CIPHER_SUITES.to_vec();
        let strict = choose_suites(&mut all, Some("HIGH:AES128-SHA"), None, Unknown::Refuse);
        assert!(strict.unwrap_err().starts_with("There is no cipher 'AES128-SHA', but ECDHE-"));
        assert!(chosen(None, Some("NONSENSE")).unwrap_err().contains("TLS_AES_256_GCM_SHA384"));
    }
}
