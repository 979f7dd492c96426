//! Packets that get lost or damaged on the way: rules of nftables in the guest, so that nothing depends on the host.
//! They count packets rather than throw dice, so every run loses the same ones.

use crate::lab::Lab;
use crate::side::Result;

/// The way that packets of RoCE take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    ToRxe,
    FromRxe,
}

/// Which packets, counted from the rule's first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// Only this one.
    Only(u32),
    /// A ninth, again and again. Not every n-th, and by a period that is longer than what either side sends at a stretch: a
    /// requester that sends n packets again would lose the same one for ever.
    Some,
}

/// A prime number, so that squares are spread over it without order. (The first that are chosen are 1, 5 and 10.)
const PERIOD: u32 = 1009;

/// Sets a rule; only one at a time.
///
/// rxe takes a packet that its own filter refuses for one that was not sent; so what it sends is not refused but led
/// away to an interface with no host behind it.
pub(crate) fn lose(lab: &mut Lab, way: Way, which: Which) -> Result<()> {
    let chosen = match which {
        Which::Only(index) => format!("numgen inc mod 1000000 == {index}"),
        Which::Some => {
            let chosen = (0..PERIOD).filter(|n| (n + 33).pow(2) % PERIOD % 9 == 3);
            let chosen: Vec<String> = chosen.map(|n| n.to_string()).collect();
            format!("numgen inc mod {PERIOD} {{ {} }}", chosen.join(", "))
        }
    };
    let (family, hook, verdict) = match way {
        Way::ToRxe => ("inet", "input", "drop"),
        Way::FromRxe => ("netdev", "egress device eth0", "fwd to dummy0"),
    };
    lab.guest(&format!(
        "nft 'add table {family} outage; \
         add chain {family} outage at {{ type filter hook {hook} priority 0; }}; \
         add rule {family} outage at udp dport 4791 {chosen} counter {verdict}'"
    ))
    .map(drop)
}

/// Takes the rule away; how many packets it took.
pub(crate) fn heal(lab: &mut Lab) -> Result<u64> {
    let rules = lab.guest("nft list ruleset && nft flush ruleset")?;
    let mut words = rules.split_whitespace();
    words
        .find(|word| *word == "packets")
        .and_then(|_| words.next()?.parse().ok())
        .ok_or_else(|| format!("no counter in the rules: {rules}"))
}

/// What the rules need.
pub(crate) fn prepare(lab: &mut Lab) -> Result<()> {
    // In this order: busybox's modprobe does not know all that the modules depend on.
    lab.guest(
        "modprobe -a crc32c_generic nf_tables nft_numgen nft_fwd_netdev dummy; ip link set dummy0 up; nft flush ruleset",
    )
    .map(drop)
}
