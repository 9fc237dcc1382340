//! Completion scripts for the shells.

use super::table::{CommandLineOption, flags};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// The script, for the place where the shell looks for such.
    pub fn script(self) -> String {
        match self {
            Self::Bash => bash(),
            Self::Zsh => zsh(),
            Self::Fish => fish(),
        }
    }
}

fn bash() -> String {
    let all: Vec<&str> = flags().flat_map(|flag| flag.names.iter().copied()).collect();
    let files: Vec<&str> = names_where(takes_file);
    let values: Vec<&str> = names_where(|flag| flag.value.is_some() && !takes_file(flag));
    format!(
        "_bobbin_cli() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    case $previous in
        {files}) COMPREPLY=($(compgen -f -- \"$current\")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$current\")); return ;;
        --show-pushes) COMPREPLY=($(compgen -W 'yes no' -- \"$current\")); return ;;
        {values}) return ;;
    esac
    if [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W '{all}' -- \"$current\"))
    fi
}}
complete -F _bobbin_cli bobbin-cli
",
        files = files.join("|"),
        values = values.join("|"),
        all = all.join(" "),
    )
}

fn zsh() -> String {
    let mut output = String::from("#compdef bobbin-cli\n\n_arguments -S \\\n");
    for flag in flags() {
        for name in flag.names {
            let help = flag.help.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]");
            let help = help.replace(':', "\\:");
            let value = flag.value.map_or_else(String::new, |value| match value {
                _ if takes_file(flag) => format!(":{value}:_files"),
                "yes|no" | "bash|zsh|fish" => format!(":value:({})", value.replace('|', " ")),
                _ => format!(":{value}:"),
            });
            output.push_str(&format!("  '{name}[{help}]{value}' \\\n"));
        }
    }
    output.push_str("  '*:argument:'\n");
    output
}

fn fish() -> String {
    let mut output = String::from("complete -c bobbin-cli -f\n");
    for flag in flags() {
        for name in flag.names {
            let name = match name.strip_prefix("--") {
                Some(long) => format!("-l {long}"),
                None => format!("-s {}", &name[1..]),
            };
            let value = match flag.value {
                None => String::new(),
                Some(_) if takes_file(flag) => " -r -F".to_owned(),
                Some(value @ ("yes|no" | "bash|zsh|fish")) => {
                    format!(" -x -a '{}'", value.replace('|', " "))
                }
                Some(_) => " -x".to_owned(),
            };
            let help = flag.help.replace('\\', "\\\\").replace('\'', "\\'");
            output.push_str(&format!("complete -c bobbin-cli {name}{value} -d '{help}'\n"));
        }
    }
    output
}

fn names_where(holds: fn(&CommandLineOption) -> bool) -> Vec<&'static str> {
    let flags = flags().filter(|flag| holds(flag));
    flags.flat_map(|flag| flag.names.iter().copied()).collect()
}

fn takes_file(flag: &CommandLineOption) -> bool {
    matches!(flag.value, Some("file" | "folder" | "socket"))
}
