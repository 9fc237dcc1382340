//! The man page, in roff with the man macros.

use super::{
    help::{self, EXAMPLES},
    table::{OptionSection, flags},
};

/// The page, for `man -l` or a package.
pub fn page() -> String {
    let mut output = format!(
        ".TH BOBBIN\\-CLI 1 \"\" \"bobbin-cli {}\" \"Bobbin\"\n{INTRODUCTION}",
        env!("CARGO_PKG_VERSION")
    );
    output.push_str(".SH OPTIONS\n");
    for section in OptionSection::ALL {
        output.push_str(&format!(".SS {}\n", escape(section.title())));
        for flag in flags().filter(|flag| flag.section == section) {
            let usage = escape(&help::usage(flag));
            output.push_str(&format!(".TP\n\\fB{usage}\\fR\n{}\n", escape(flag.help)));
        }
    }
    output.push_str(DESCRIPTION_OF_THE_REST);
    output.push_str(".SH EXAMPLES\n.nf\n");
    for example in EXAMPLES.lines().filter(|line| line.starts_with(' ')) {
        output.push_str(&format!("{}\n", escape(example.trim_start())));
    }
    output.push_str(".fi\n.SH SEE ALSO\nbobbin\\-server(1), bobbin\\-benchmark(1)\n");
    output
}

/// Backslashes and hyphens as they are typed, and no line that looks like a macro.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

const INTRODUCTION: &str = "\
.SH NAME
bobbin\\-cli \\- a shell, and tools, for servers that speak the Redis protocol
.SH SYNOPSIS
.B bobbin\\-cli
[\\fIoptions\\fR] [\\fIcommand\\fR [\\fIargument\\fR ...]]
.br
.B bobbin\\-cli
[\\fIoptions\\fR] \\fBdoctor\\fR
.br
.B bobbin\\-cli
[\\fIoptions\\fR] \\fBtop\\fR [\\-\\-replay \\fIfile\\fR [\\fIspeed\\fR]]
.br
.B bobbin\\-cli
[\\fIoptions\\fR] \\fBrecord\\fR \\fIfile\\fR [\\fIlimit\\fR]
.br
.B bobbin\\-cli
[\\fIoptions\\fR] \\fBmigrate\\fR \\fIsource\\fR [replace] [switch] [back]
.SH DESCRIPTION
With a command it sends it, prints the reply and ends. Without one it is a shell with history,
completion and hints. Some options start a tool instead. \\fBdoctor\\fR looks at this machine and at
the server and says what to change. \\fBtop\\fR shows a server live, on the whole screen, where ?
lists the keys; into a file or a pipe it writes one look at it as text, or with \\-r several.
\\fBrecord\\fR keeps what it asks in a file, which \\fBtop \\-\\-replay\\fR shows again.
\\fBmigrate\\fR has the server follow another one, compares them, and has it take over.
";

const DESCRIPTION_OF_THE_REST: &str = "\
.SH EXIT STATUS
0, or 1 where the connection or (with \\-e) a command failed.
.SH ENVIRONMENT
.TP
VALKEYCLI_AUTH, REDISCLI_AUTH
The password, where \\-a does not say it.
.TP
VALKEYCLI_CLUSTER_YES, REDISCLI_CLUSTER_YES
1 is as \\-\\-cluster\\-yes.
.TP
VALKEYCLI_HISTFILE, REDISCLI_HISTFILE
The history's file; /dev/null for none.
.TP
VALKEYCLI_RCFILE, REDISCLI_RCFILE
The file with the shell's preferences.
.TP
NO_COLOR
Set, it keeps the shell from using colours.
.SH FILES
.TP
~/.valkeycli_history
What was typed, without what holds a password.
.TP
~/.valkeyclirc
Preferences of the shell, such as \":set nohints\".
";
