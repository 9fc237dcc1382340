//! Whether a replica has got to the server that it was told of. The name of that one may lead
//! elsewhere from its machine, where it may find nobody, or take another server's data.

use std::net::{IpAddr, ToSocketAddrs};

use bobbin_client::ServerAddress;

use super::node::NodeFacts;

/// What was seen of a link while waiting for it.
#[derive(Default)]
pub struct LinkWatch {
    without: u32,
    elsewhere: u32,
}

impl LinkWatch {
    /// Whether `replica` follows `primary` by now. An error says that it is time to give up. What
    /// was seen before a link does not count for one that is lost later.
    pub fn look(&mut self, primary: &NodeFacts, replica: &NodeFacts) -> Result<bool, String> {
        if leads_elsewhere(primary, replica) {
            self.elsewhere += 1;
            return if self.elsewhere < ELSEWHERE_LOOKS {
                Ok(false)
            } else {
                Err(ELSEWHERE.into())
            };
        }
        self.elsewhere = 0;
        if is_up(replica) {
            self.without = 0;
            return Ok(true);
        }
        self.without += u32::from(!copies(replica));
        if self.without < WITHOUT_LOOKS { Ok(false) } else { Err(WITHOUT.into()) }
    }
}

/// Whether there is a link, but to a server with another history.
fn leads_elsewhere(primary: &NodeFacts, replica: &NodeFacts) -> bool {
    let [expected, found] = [primary, replica].map(|facts| facts.text("master_replid"));
    is_up(replica) && !expected.is_empty() && expected != found
}

/// Whether a replica gets a copy, which takes as long as it takes.
pub fn copies(replica: &NodeFacts) -> bool {
    replica.is_on("master_sync_in_progress") || replica.is_on("loading")
}

fn is_up(replica: &NodeFacts) -> bool {
    replica.is_replica() && replica.text("master_link_status") == "up"
}

/// Refuses to have the server at `follower` follow `primary` where that address would lead it to
/// its own machine, and this program is on another one than it.
pub fn refuse_own_machine(
    primary: &ServerAddress,
    follower: &ServerAddress,
    advice: &str,
) -> Result<(), String> {
    match primary {
        ServerAddress::Tcp { host, .. } if is_loopback(host) && !is_here(follower) => {
            Err(format!("From {follower} the address {primary} leads to its own machine. {advice}"))
        }
        _ => Ok(()),
    }
}

/// Whether the source follows the target, perhaps over other servers. Then the target must not
/// follow it: they would wait for each other.
pub fn is_below(
    source: &NodeFacts,
    at: &ServerAddress,
    target: &NodeFacts,
    target_at: &ServerAddress,
) -> bool {
    let is_history = !target.is_replica() && shares_history(source, target);
    let port = source.text("master_port");
    let host = source.text("master_host");
    let is_place = match target_at {
        // On its own machine the source may mean another server by such a name than we do.
        ServerAddress::Tcp { .. } if is_loopback(host) && !is_here(at) => false,
        ServerAddress::Tcp { host: name, port: number } => {
            port == number.to_string() && is_same_host(host, name)
        }
        ServerAddress::Unix(_) => {
            is_loopback(host) && is_here(at) && port == target.text("tcp_port")
        }
    };
    source.is_replica() && (is_history || is_place)
}

fn shares_history(one: &NodeFacts, other: &NodeFacts) -> bool {
    let [one, other] = [one, other].map(|facts| facts.text("master_replid"));
    !one.is_empty() && one == other
}

fn is_same_host(one: &str, other: &str) -> bool {
    let addresses = |host: &str| (host, 0).to_socket_addrs().ok().map(Vec::from_iter);
    one == other
        || match (addresses(one), addresses(other)) {
            (Some(one), Some(other)) => one.iter().any(|address| other.contains(address)),
            _ => false,
        }
}

fn is_here(address: &ServerAddress) -> bool {
    match address {
        ServerAddress::Tcp { host, .. } => is_loopback(host),
        ServerAddress::Unix(_) => true,
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Looks in a row at which a link has led elsewhere: what both servers say is not of one moment.
const ELSEWHERE_LOOKS: u32 = 4;
const ELSEWHERE: &str =
    "Its link leads to a server with other data: does the name mean another machine there?";
/// Looks at which there was no link.
const WITHOUT_LOOKS: u32 = 60;
const WITHOUT: &str = "It has had no link for half a minute; its log says why.";

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(role: &str, link: &str, history: &str) -> NodeFacts {
        NodeFacts::of(&format!(
            "role:{role}\r\nmaster_link_status:{link}\r\nmaster_replid:{history}\r\n"
        ))
    }

    #[test]
    fn a_link_is_waited_for() {
        let primary = NodeFacts::of("role:master\r\nmaster_replid:aa\r\n");
        let mut link = LinkWatch::default();
        assert_eq!(link.look(&primary, &facts("slave", "down", "bb")), Ok(false));
        for copies in ["master_sync_in_progress", "loading"] {
            let copies = NodeFacts::of(&format!("role:slave\r\n{copies}:1\r\n"));
            for _ in 0..10 * WITHOUT_LOOKS {
                assert_eq!(link.look(&primary, &copies), Ok(false));
            }
        }
        assert_eq!(link.look(&primary, &facts("slave", "up", "aa")), Ok(true));
        // It may be lost for a while, again and again.
        for looks in [1, WITHOUT_LOOKS - 1, WITHOUT_LOOKS - 1] {
            for _ in 0..looks {
                assert_eq!(link.look(&primary, &facts("slave", "down", "bb")), Ok(false));
            }
            assert_eq!(link.look(&primary, &facts("slave", "up", "aa")), Ok(true));
        }
        // A server that tells no history has to be believed.
        assert_eq!(link.look(&NodeFacts::of("role:master"), &facts("slave", "up", "aa")), Ok(true));
    }

    #[test]
    fn a_link_that_does_not_come_or_leads_elsewhere() {
        let primary = NodeFacts::of("role:master\r\nmaster_replid:aa\r\n");
        for (replica, looks) in [
            (facts("slave", "down", "bb"), WITHOUT_LOOKS),
            (facts("master", "", "aa"), WITHOUT_LOOKS),
            (facts("slave", "up", "bb"), ELSEWHERE_LOOKS),
        ] {
            let mut link = LinkWatch::default();
            for _ in 1..looks {
                assert_eq!(link.look(&primary, &replica), Ok(false));
            }
            assert!(link.look(&primary, &replica).is_err());
        }
    }

    #[test]
    fn a_source_below_the_target() {
        let tcp = |host: &str, port| ServerAddress::Tcp { host: host.into(), port };
        let target = NodeFacts::of("role:master\r\nmaster_replid:aa\r\ntcp_port:7000\r\n");
        let replica = |host: &str, history: &str| {
            let place = format!("master_host:{host}\r\nmaster_port:7000\r\n");
            NodeFacts::of(&format!("role:slave\r\n{place}master_replid:{history}\r\n"))
        };
        let [here, there] = [tcp("localhost", 7000), tcp("192.0.2.1", 7000)];
        // By its history, over however many servers.
        let below = |source: &NodeFacts, at: &ServerAddress, target_at: &ServerAddress| {
            is_below(source, at, &target, target_at)
        };
        assert!(below(&replica("192.0.2.9", "aa"), &tcp("192.0.2.2", 1), &there));
        assert!(!below(&NodeFacts::of("role:master\r\nmaster_replid:aa\r\n"), &there, &there));
        // By the place, before there is a link.
        for (host, at, target_at, expected) in [
            ("192.0.2.1", tcp("192.0.2.2", 7001), &there, true),
            ("192.0.2.3", tcp("192.0.2.2", 7001), &there, false),
            ("127.0.0.1", tcp("127.0.0.1", 7001), &here, true),
            ("127.0.0.1", tcp("192.0.2.2", 7001), &here, false),
            ("127.0.0.1", tcp("127.0.0.1", 7001), &ServerAddress::Unix("/s".into()), true),
            ("192.0.2.3", tcp("127.0.0.1", 7001), &ServerAddress::Unix("/s".into()), false),
        ] {
            assert_eq!(below(&replica(host, "bb"), &at, target_at), expected, "{host} {at}");
        }
    }

    #[test]
    fn an_address_of_this_machine_is_for_servers_on_it() {
        let tcp = |host: &str| ServerAddress::Tcp { host: host.into(), port: 6379 };
        let refuses = |primary: ServerAddress, follower: ServerAddress| {
            refuse_own_machine(&primary, &follower, "").is_err()
        };
        for host in ["127.0.0.1", "LOCALHOST", "::1", "127.3.2.1", "::ffff:127.0.0.1"] {
            assert!(refuses(tcp(host), tcp("10.0.0.1")), "{host}");
            assert!(refuses(tcp(host), tcp("redis.example.com")), "{host}");
            assert!(!refuses(tcp(host), tcp("127.0.0.1")), "{host}");
            assert!(!refuses(tcp(host), ServerAddress::Unix("/run/socket".into())), "{host}");
            assert!(!refuses(tcp("10.0.0.1"), tcp(host)), "{host}");
        }
    }
}
