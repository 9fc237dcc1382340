//! What the kernel and its settings say, from /proc and /sys.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::Finding;

/// What is looked at; `None` where it cannot be read.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// `always [madvise] never`
    pub huge_pages: Option<String>,
    pub overcommit: Option<u64>,
    pub somaxconn: Option<u64>,
    pub syn_backlog: Option<u64>,
    pub swappiness: Option<u64>,
    pub swap_total_kb: Option<u64>,
    pub swap_used_kb: Option<u64>,
    /// Open files this process may have; a server started from here inherits it.
    pub files_max: Option<u64>,
    pub clock_source: Option<String>,
    /// Percent of the processors' time since the start that went to other virtual machines.
    pub steal_percent: Option<f64>,
    pub governor: Option<String>,
}

impl HostFacts {
    pub fn read() -> Self {
        let swap = |name: &str| memory_kb(name);
        Self {
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled"),
            overcommit: number("/proc/sys/vm/overcommit_memory"),
            somaxconn: number("/proc/sys/net/core/somaxconn"),
            syn_backlog: number("/proc/sys/net/ipv4/tcp_max_syn_backlog"),
            swappiness: number("/proc/sys/vm/swappiness"),
            swap_total_kb: swap("SwapTotal:"),
            swap_used_kb: swap("SwapTotal:")
                .zip(swap("SwapFree:"))
                .map(|(total, free)| total.saturating_sub(free)),
            files_max: Some(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            steal_percent: steal_percent(&read("/proc/stat").unwrap_or_default()),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

/// A finding for everything that could be read.
pub fn examine(host: &HostFacts) -> Vec<Finding> {
    let findings = [
        host.huge_pages.as_deref().map(huge_pages),
        host.overcommit.map(overcommit),
        host.somaxconn.map(|max| queue("somaxconn", "net.core.somaxconn", max)),
        host.syn_backlog.map(|max| queue("SYN backlog", "net.ipv4.tcp_max_syn_backlog", max)),
        swap(host),
        host.files_max.map(files),
        host.clock_source.as_deref().map(clock_source),
        host.steal_percent.map(steal),
        host.governor.as_deref().map(governor),
    ];
    findings.into_iter().flatten().collect()
}

fn huge_pages(setting: &str) -> Finding {
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or(setting);
    if chosen != "always" {
        return Finding::good(format!("transparent huge pages: {chosen}"));
    }
    Finding::bad(
        "transparent huge pages: always; they make latency uneven and forks copy more",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )
}

fn overcommit(mode: u64) -> Finding {
    match mode {
        1 => Finding::good("overcommit_memory: 1"),
        mode => Finding::bad(
            format!(
                "overcommit_memory: {mode}; large allocations may be refused, and Redis and Valkey \
                 may fail to save, as they fork"
            ),
            "sysctl vm.overcommit_memory=1",
        ),
    }
}

fn queue(name: &str, setting: &str, max: u64) -> Finding {
    if max >= QUEUE_LEN_GOOD {
        return Finding::good(format!("{name}: {max}"));
    }
    Finding::note(
        format!("{name}: {max}; a burst of new connections may be dropped"),
        format!("sysctl {setting}=65535, and tcp-backlog in the server's configuration"),
    )
}

fn swap(host: &HostFacts) -> Option<Finding> {
    let total = host.swap_total_kb?;
    if total == 0 {
        return Some(Finding::good("swap: none"));
    }
    let used = host.swap_used_kb.unwrap_or(0);
    let swappiness = host.swappiness.unwrap_or(0);
    if used > SWAP_USED_KB_GOOD {
        return Some(Finding::bad(
            format!("swap: {} MB in use; a value read from there takes milliseconds", used / 1024),
            "give the machine more memory, or set maxmemory lower",
        ));
    }
    if swappiness > SWAPPINESS_GOOD {
        return Some(Finding::note(
            format!("swap: {} MB, swappiness {swappiness}", total / 1024),
            "sysctl vm.swappiness=1, so that the server's memory stays where it is",
        ));
    }
    Some(Finding::good(format!("swap: {} MB, swappiness {swappiness}", total / 1024)))
}

fn files(max: u64) -> Finding {
    if max >= FILES_GOOD {
        return Finding::good(format!("open files: {max}"));
    }
    Finding::note(
        format!("open files: {max} for programs started from here; each client takes one"),
        "ulimit -n 65536, or LimitNOFILE= in the service",
    )
}

fn clock_source(source: &str) -> Finding {
    if matches!(source, "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter") {
        return Finding::good(format!("clock source: {source}"));
    }
    Finding::bad(
        format!("clock source: {source}; reading the time is a system call there"),
        "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
    )
}

fn steal(percent: f64) -> Finding {
    if percent < STEAL_PERCENT_GOOD {
        return Finding::good(format!("steal time: {percent:.2}% since the start"));
    }
    Finding::bad(
        format!("steal time: {percent:.2}% since the start; other machines on this host take it"),
        "a host with less on it, or processors of one's own",
    )
}

fn governor(name: &str) -> Finding {
    if matches!(name, "performance" | "schedutil") {
        return Finding::good(format!("frequency governor: {name}"));
    }
    Finding::note(
        format!("frequency governor: {name}; the first requests after a pause are slow"),
        "cpupower frequency-set -g performance",
    )
}

/// From the line `cpu user nice system idle iowait irq softirq steal ...` of /proc/stat.
fn steal_percent(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<f64> = line.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    let total: f64 = times.iter().take(STEAL_FIELD + 1).sum();
    Some(times.get(STEAL_FIELD)? * 100.0 / total.max(1.0))
}

fn memory_kb(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn number(path: &str) -> Option<u64> {
    read(path)?.parse().ok()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

const QUEUE_LEN_GOOD: u64 = 1024;
const SWAP_USED_KB_GOOD: u64 = 64 * 1024;
const SWAPPINESS_GOOD: u64 = 10;
const FILES_GOOD: u64 = 10_032;
const STEAL_PERCENT_GOOD: f64 = 1.0;
const STEAL_FIELD: usize = 7;

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    fn levels(host: &HostFacts) -> Vec<Level> {
        examine(host).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn what_cannot_be_read_is_not_judged() {
        assert_eq!(examine(&HostFacts::default()), []);
    }

    #[test]
    fn a_bad_host_and_a_good_one() {
        let bad = HostFacts {
            huge_pages: Some("[always] madvise never".into()),
            overcommit: Some(0),
            somaxconn: Some(128),
            syn_backlog: Some(128),
            swappiness: Some(60),
            swap_total_kb: Some(1 << 20),
            swap_used_kb: Some(1 << 19),
            files_max: Some(1024),
            clock_source: Some("acpi_pm".into()),
            steal_percent: Some(7.0),
            governor: Some("powersave".into()),
        };
        assert!(!levels(&bad).contains(&Level::Good));
        assert_eq!(levels(&bad).len(), 9);
        let good = HostFacts {
            huge_pages: Some("always [madvise] never".into()),
            overcommit: Some(1),
            somaxconn: Some(4096),
            syn_backlog: Some(4096),
            swappiness: Some(60),
            swap_total_kb: Some(0),
            swap_used_kb: Some(0),
            files_max: Some(1 << 20),
            clock_source: Some("tsc".into()),
            steal_percent: Some(0.1),
            governor: Some("performance".into()),
        };
        assert!(levels(&good).iter().all(|level| *level == Level::Good));
    }

    #[test]
    fn steal_time() {
        let stat = "cpu  50 0 20 20 0 0 0 10 5 0\ncpu0 1 1\n";
        assert_eq!(steal_percent(stat), Some(10.0));
        assert_eq!(steal_percent(""), None);
    }
}
