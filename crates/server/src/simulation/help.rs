//! HELP, as each container answers it.

use super::process::SimulatedProcess;
use crate::config::OptionId;

#[test]
fn every_container_lists_its_subcommands() {
    let mut process = SimulatedProcess::new(1);
    let (server, client) = (process.server, process.connect(0));
    server.config.set_internally(OptionId::enable_debug_command, "yes").expect("it is one");
    let rows = server.registry.all().iter().filter(|row| !row.subcommands.is_empty());
    // The cluster's HELP answers that there is none.
    let containers = rows.map(|row| row.row.name).filter(|name| *name != "cluster");
    for name in containers.chain(["debug"]) {
        let reply = process.ask(&client, &format!("{name} HELP"));
        let lines: Vec<&str> = reply.lines().collect();
        let upper = name.to_ascii_uppercase();
        let head = format!("+{upper} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        assert_eq!(lines[..2], [&*format!("*{}", lines.len() - 1), &*head]);
        assert!(lines.ends_with(&["+HELP", "+    Print this help."]), "{reply}");
        assert_eq!(lines.iter().filter(|line| **line == "+HELP").count(), 1, "{reply}");
    }
    let object = process.ask(&client, "OBJECT HELP");
    assert!(object.contains("+FREQ key\r\n+    Answers how often"), "{object}");
}
