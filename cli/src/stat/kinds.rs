//! Which counters a reader looks at first.

/// The kinds, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Something was lost, refused, late or repeated.
    Trouble,
    /// Packets, messages and bytes on their way.
    Traffic,
    /// How the engine works: threads, wake-ups, system calls.
    Engine,
}

/// Prefixes, parts and names of counters that count trouble.
const TROUBLE_PREFIXES: [&str; 2] = ["drop_", "fault_"];
const TROUBLE_PARTS: [&str; 2] = ["_err", "retr"];
const TROUBLE: [&str; 16] = [
    "duplicate_request",
    "out_of_seq_request",
    "ack_timeout",
    "implied_nak",
    "rcvd_cnp",
    "sent_cnp",
    "cm_malformed",
    "cm_stray_msgs",
    "cm_duplicate_msgs",
    "cm_refused_reqs",
    "cm_evicted",
    "rx_buffer_drops",
    "rings_full",
    "rings_broken",
    "hand_over_lost",
    "link_downed",
];
const ENGINE: [&str; 19] = [
    "split_pkts",
    "ack_deferred",
    "tx_calls",
    "tx_direct",
    "tx_blocked",
    "tx_gso_refused",
    "rx_calls",
    "rx_empty",
    "rx_truncated",
    "bells_served",
    "handed_over",
    "taken_over",
    "steering_repairs",
    "progress_wakes",
    "progress_kicks",
    "progress_ticks",
    "progress_watches",
    "heap_trims",
    "heap_trim_us",
];

impl Kind {
    pub(super) fn of(counter: &str) -> Kind {
        let is_trouble = TROUBLE.contains(&counter)
            || TROUBLE_PREFIXES.iter().any(|p| counter.starts_with(p))
            || TROUBLE_PARTS.iter().any(|part| counter.contains(part));
        if is_trouble {
            Kind::Trouble
        } else if ENGINE.contains(&counter) {
            Kind::Engine
        } else {
            Kind::Traffic
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_counters() {
        let counters = urxe::topics().into_iter();
        let counters = counters.filter(|topic| topic.kind == urxe::Topic::Counter);
        let known: Vec<String> = counters.map(|topic| topic.name).collect();
        for name in TROUBLE.iter().chain(&ENGINE) {
            assert!(known.iter().any(|counter| counter == name), "{name}");
        }
    }

    #[test]
    fn trouble_comes_first() {
        for counter in [
            "drop_icrc",
            "retry_exceeded_err",
            "retransmitted_pkts",
            "tx_errors",
        ] {
            assert_eq!(Kind::of(counter), Kind::Trouble, "{counter}");
        }
        assert_eq!(Kind::of("sent_pkts"), Kind::Traffic);
        assert_eq!(Kind::of("progress_wakes"), Kind::Engine);
        assert!(Kind::Trouble < Kind::Traffic && Kind::Traffic < Kind::Engine);
    }
}
