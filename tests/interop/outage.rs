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
    /// A hundredth, by the same period.
    OnePercent,
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
        Which::Some => one_in(9),
        Which::OnePercent => one_in(100),
    };
    let (family, hook, verdict) = match way {
        Way::ToRxe => ("inet", "input", "drop"),
        Way::FromRxe => ("netdev", "egress device eth0", "fwd to dummy0"),
    };
    lab.guest(&format!(
        "nft 'add table {family} outage; \
         add chain {family} outage lost {{ type filter hook {hook} priority 0; }}; \
         add rule {family} outage lost udp dport 4791 {chosen} counter {verdict}'"
    ))
    .map(drop)
}

/// The condition that takes one in so many packets.
fn one_in(parts: u32) -> String {
    let chosen = (0..PERIOD).filter(|n| (n + 33).pow(2) % PERIOD % parts == 3);
    let chosen: Vec<String> = chosen.map(|n| n.to_string()).collect();
    format!("numgen inc mod {PERIOD} {{ {} }}", chosen.join(", "))
}

/// Takes all rules away; how many packets that of [`lose`] took.
pub(crate) fn heal(lab: &mut Lab) -> Result<u64> {
    let rules = lab.guest("nft list ruleset && nft flush ruleset")?;
    let counts = counts(&rules, "chain lost");
    (counts.first().copied()).ok_or_else(|| format!("no counter in the rules: {rules}"))
}

/// Has the guest count what reaches it and is not of the standard: ACKs of another length than headers, AETH and ICRC have, and
/// opcodes that are none of rxe's RC.
pub(crate) fn watch(lab: &mut Lab) -> Result<()> {
    let (opcode, ack, last) = ("@th,64,8", "0x11", "0x17");
    lab.guest(&format!(
        "nft 'add table inet watch; \
         add chain inet watch seen {{ type filter hook prerouting priority -300; }}; \
         add rule inet watch seen udp dport 4791 {opcode} {ack} udp length != 28 counter; \
         add rule inet watch seen udp dport 4791 {opcode} > {last} counter'"
    ))
    .map(drop)
}

/// How many packets [`watch`] has counted.
pub(crate) fn unknown(lab: &mut Lab) -> Result<u64> {
    let rules = lab.guest("nft list table inet watch")?;
    match counts(&rules, "chain seen")[..] {
        [lengths, opcodes] => Ok(lengths + opcodes),
        _ => Err(format!("not two counters in the rules: {rules}")),
    }
}

/// Packets that rules of a chain counted.
fn counts(rules: &str, chain: &str) -> Vec<u64> {
    let of_chain = rules.split_once(chain).map_or("", |(_, rest)| rest);
    let words: Vec<&str> = of_chain.split_whitespace().collect();
    (words.windows(2))
        .filter(|pair| pair[0] == "packets")
        .filter_map(|pair| pair[1].parse().ok())
        .collect()
}

/// What the rules need.
pub(crate) fn prepare(lab: &mut Lab) -> Result<()> {
    // In this order: busybox's modprobe does not know all that the modules depend on.
    lab.guest(
        "modprobe -a crc32c_generic nf_tables nft_numgen nft_fwd_netdev dummy; ip link set dummy0 up; nft flush ruleset",
    )
    .map(drop)
}
