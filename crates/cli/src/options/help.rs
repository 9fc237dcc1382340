//! `--help`.

use bobbin_client::wrapped;

use super::table::{CommandLineOption, OptionSection, flags};

/// The help text, for lines of 80 columns.
pub fn text() -> String {
    let mut output = String::from(USAGE);
    for section in OptionSection::ALL {
        output.push_str(&format!("\n{}:\n", section.title()));
        for flag in flags().filter(|flag| flag.section == section) {
            append_flag(flag, &mut output);
        }
    }
    output.push_str(EXAMPLES);
    output
}

fn append_flag(flag: &CommandLineOption, output: &mut String) {
    let usage = usage(flag);
    let mut lines = wrapped(flag.help, WIDTH - COLUMN).into_iter();
    if usage.len() + 4 <= COLUMN {
        output.push_str(&format!(
            "  {usage:0$}{1}\n",
            COLUMN - 2,
            lines.next().unwrap_or_default()
        ));
    } else {
        output.push_str(&format!("  {usage}\n"));
    }
    for line in lines {
        output.push_str(&format!("{:COLUMN$}{line}\n", ""));
    }
}

/// `-a, --pass <password>`
pub fn usage(flag: &CommandLineOption) -> String {
    let names = flag.names.join(", ");
    flag.value.map_or_else(|| names.clone(), |value| format!("{names} <{value}>"))
}

const WIDTH: usize = 79;
const COLUMN: usize = 28;

const USAGE: &str = "\
Usage: bobbin-cli [options] [command [argument ...]]
       bobbin-cli [options] doctor
       bobbin-cli [options] top [--replay file [speed]]
       bobbin-cli [options] record file [limit]
       bobbin-cli [options] migrate source [replace] [switch] [back]

Runs a command on a server that speaks the Redis protocol and prints the reply.
Without a command it is a shell; there, \"help\" tells more.
";

pub const EXAMPLES: &str = "
Examples:
  bobbin-cli SET greeting hello
  bobbin-cli -u redis://alice:secret@db.example.com:6380/2 DBSIZE
  bobbin-cli -x SET picture < picture.png
  bobbin-cli -D '' --raw DUMP a > a.dump; bobbin-cli -X DATA RESTORE b 0 DATA < a.dump
  bobbin-cli -r 10 -i 1 INFO memory | grep used_memory_human
  bobbin-cli --scan --pattern 'session:*'
  bobbin-cli --eval script.lua key1 key2 , argument1
  bobbin-cli --latency-history -i 5
  bobbin-cli doctor
  bobbin-cli -h db.example.com top
  bobbin-cli -r 12 -i 5 top > five-seconds-each.txt
  bobbin-cli -i 10 record night.jsonl 500mb; bobbin-cli top --replay night.jsonl 60
  bobbin-cli -p 6380 migrate redis.example.com:6379 switch
";
