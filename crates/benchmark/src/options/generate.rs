//! The man page and the shells' completions, made from the tables of flags.

use super::Description;

/// A page for `man`, of both grammars.
pub fn man_page(sections: &[(&str, &str, Vec<Description>)], notes: &str) -> String {
    let mut page = format!(
        ".TH BOBBIN-BENCHMARK 1 \"\" \"Bobbin {}\"\n.SH NAME\nbobbin-benchmark \\- measure a server \
         of the Redis protocol\n.SH SYNOPSIS\n",
        env!("CARGO_PKG_VERSION")
    );
    for (number, (usage, _, _)) in sections.iter().enumerate() {
        if number > 0 {
            page += ".br\n";
        }
        page += &format!("{}\n", escape(usage));
    }
    for (_, title, flags) in sections {
        page += &format!(".SH {}\n", title.to_uppercase());
        for flag in flags {
            page += ".TP\n";
            let names: Vec<_> =
                flag.names.iter().map(|name| format!("\\fB{}\\fR", escape(name))).collect();
            page += &names.join(", ");
            if !flag.value.is_empty() {
                page += &format!(" \\fI{}\\fR", escape(flag.value));
            }
            page += &format!("\n{}\n", escape(flag.help));
        }
    }
    page += ".SH NOTES\n.nf\n";
    for line in notes.lines() {
        page += &format!("{}\n", escape(line));
    }
    page + ".fi\n"
}

/// A completion script for `bash`, `zsh` or `fish`; nothing for other shells.
pub fn completion(shell: &str, flags: &[Description], subcommands: &[&str]) -> Option<String> {
    let words: Vec<_> = flags.iter().flat_map(|flag| flag.names).copied().collect();
    Some(match shell {
        "bash" => format!(
            "_bobbin_benchmark() {{\n    COMPREPLY=($(compgen -W \"{} {}\" -- \
             \"${{COMP_WORDS[COMP_CWORD]}}\"))\n}}\ncomplete -o default -F _bobbin_benchmark \
             bobbin-benchmark\n",
            words.join(" "),
            subcommands.join(" ")
        ),
        "zsh" => {
            let mut script = "#compdef bobbin-benchmark\n_arguments \\\n".to_owned();
            for flag in flags {
                let help = flag.help.replace('\'', "'\\''").replace('[', "\\[");
                let help = help.replace(']', "\\]").replace(':', "\\:");
                for name in flag.names {
                    let value = match flag.value {
                        "" => String::new(),
                        value => format!(":{}:", value.replace(':', " ")),
                    };
                    script += &format!("    '{name}[{help}]{value}' \\\n");
                }
            }
            script + &format!("    '*: :({})'\n", subcommands.join(" "))
        }
        "fish" => {
            let mut script = String::new();
            for flag in flags {
                let help = flag.help.replace('\\', "\\\\").replace('\'', "\\'");
                for name in flag.names {
                    let name = match name.strip_prefix("--") {
                        Some(long) => format!("-l {long}"),
                        None => format!("-s {}", name.trim_start_matches('-')),
                    };
                    let value = if flag.value.is_empty() { "" } else { " -r" };
                    script += &format!("complete -c bobbin-benchmark {name}{value} -d '{help}'\n");
                }
            }
            script
                + &format!(
                    "complete -c bobbin-benchmark -n __fish_use_subcommand -a '{}'\n",
                    subcommands.join(" ")
                )
        }
        _ => return None,
    })
}

fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::redis::GRAMMAR;

    #[test]
    fn every_flag_is_in_every_form() {
        let flags = GRAMMAR.descriptions();
        let man = man_page(&[(GRAMMAR.usage, "options", flags.clone())], GRAMMAR.notes);
        for shell in ["bash", "zsh", "fish"] {
            let script = completion(shell, &flags, &["sweep"]).unwrap();
            assert!(script.contains("sweep"));
            for name in flags.iter().flat_map(|flag| flag.names) {
                assert!(script.contains(name.trim_start_matches('-')), "{shell}: {name}");
                assert!(man.contains(&escape(name)), "{name}");
            }
        }
        assert_eq!(completion("csh", &flags, &[]), None);
    }
}
