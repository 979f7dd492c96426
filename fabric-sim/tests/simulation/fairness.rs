//! Several QPs of a host, and both directions of a cable.

use fabric_sim::host::{ConnectOptions, StreamId, StreamOp, StreamSpec, TransportConfig};
use fabric_sim::{FabricConfig, HostId, Link, Mode, Rate, Sim, Span, Topology};
use urxe_core::congestion::CongestionControl;
use urxe_core::qp::attr::Mtu;

/// Enough messages for as long as a run takes.
const ENDLESS: u64 = 1 << 40;

fn sim(hosts: u32, gbps: u64) -> Sim {
    let config = FabricConfig {
        mode: Mode::Lite,
        ..FabricConfig::default()
    };
    let topology = Topology::single_switch(hosts, Link::new(Rate::gbps(gbps)));
    Sim::new(topology, config).expect("builds")
}

fn add(sim: &mut Sim, op: StreamOp, from: u32, to: u32, size: u32, depth: u32) -> StreamId {
    let spec = StreamSpec {
        op,
        count: ENDLESS,
        depth,
        ..StreamSpec::write(HostId(from), HostId(to), size)
    };
    sim.add_stream(spec).expect("connects")
}

/// Gb/s of each stream over so long.
fn rates(sim: &mut Sim, span: Span) -> Vec<f64> {
    sim.run_for(span);
    sim.verdict().expect("all holds");
    let streams: Vec<u64> = (0..sim.streams().len() as u32)
        .map(|n| sim.stream_bytes(StreamId(n)))
        .collect();
    let rate = |bytes: u64| bytes as f64 * 8.0 / span.as_secs_f64() / 1e9;
    streams.into_iter().map(rate).collect()
}

fn assert_even(rates: &[f64], at_least: f64) {
    let least = rates.iter().copied().fold(f64::MAX, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    assert!(
        most <= 1.1 * least && rates.iter().sum::<f64>() >= at_least,
        "Gb/s: {rates:?}"
    );
}

fn assert_nothing_again(sim: &Sim) {
    for (host, stats) in sim.transport_stats() {
        let again = (stats.retransmitted_pkts, stats.ack_timeout);
        assert_eq!(again, (0, 0), "packets sent again and timeouts of {host:?}");
    }
}

#[test]
fn three_writers_of_a_host_get_a_third_each() {
    let mut sim = sim(4, 25);
    for to in 1..4 {
        add(&mut sim, StreamOp::Write, 0, to, 64 << 10, 16);
    }
    assert_even(&rates(&mut sim, Span::from_ms(5)), 22.9);
    assert_nothing_again(&sim);
}

#[test]
fn three_readers_of_a_host_get_a_third_each() {
    let mut sim = sim(4, 25);
    for from in 1..4 {
        add(&mut sim, StreamOp::Read, from, 0, 256 << 10, 4);
    }
    assert_even(&rates(&mut sim, Span::from_ms(5)), 22.9);
    assert_nothing_again(&sim);
}

/// An ACK waits neither for the data of its own QP nor for that of others.
#[test]
fn two_hosts_that_write_to_each_other_fill_the_cable_both_ways() {
    let mut sim = sim(2, 100);
    sim.set_transport_config(TransportConfig {
        window_bytes: 1 << 30,
        window_packets: 1 << 23,
        ..TransportConfig::default()
    });
    for (from, to) in [(0, 1), (1, 0), (0, 1)] {
        add(&mut sim, StreamOp::Write, from, to, 1 << 20, 1000);
    }
    let rates = rates(&mut sim, Span::from_ms(20));
    assert_even(&[rates[0], rates[2]], 91.5);
    assert!(rates[1] > 91.5, "{rates:?}");
    assert_nothing_again(&sim);
}

/// READs of a peer take nothing from what a QP itself sends, nor the other way round.
#[test]
fn a_qp_that_is_read_from_writes_as_well() {
    let mut sim = sim(2, 25);
    add(&mut sim, StreamOp::Write, 0, 1, 64 << 10, 16);
    add(&mut sim, StreamOp::Read, 1, 0, 64 << 10, 16);
    assert_even(&rates(&mut sim, Span::from_ms(5)), 22.5);
    assert_nothing_again(&sim);
}

#[test]
fn packet_and_message_sizes_decide_nothing() {
    let mut sim = sim(5, 25);
    for (to, (mtu, size)) in [
        (Mtu::Mtu4096, 1 << 20),
        (Mtu::Mtu1024, 1 << 20),
        (Mtu::Mtu2048, 3000),
        (Mtu::Mtu4096, 5000),
    ]
    .into_iter()
    .enumerate()
    {
        let spec = StreamSpec {
            count: ENDLESS,
            depth: 64,
            options: ConnectOptions {
                mtu,
                ..ConnectOptions::default()
            },
            ..StreamSpec::write(HostId(0), HostId(to as u32 + 1), size)
        };
        sim.add_stream(spec).expect("connects");
    }
    assert_even(&rates(&mut sim, Span::from_ms(5)), 22.5);
}

/// A window of its own does not keep a QP from its share, as long as the window is wide enough for that.
#[test]
fn congestion_control_keeps_no_qp_from_its_turn() {
    let mut sim = sim(4, 25);
    for (to, congestion) in [
        CongestionControl::None,
        CongestionControl::Window { bytes: 128 << 10 },
        CongestionControl::None,
    ]
    .into_iter()
    .enumerate()
    {
        let spec = StreamSpec {
            count: ENDLESS,
            depth: 16,
            options: ConnectOptions {
                congestion,
                ..ConnectOptions::default()
            },
            ..StreamSpec::write(HostId(0), HostId(to as u32 + 1), 64 << 10)
        };
        sim.add_stream(spec).expect("connects");
    }
    assert_even(&rates(&mut sim, Span::from_ms(5)), 22.9);
}

/// A short message does not wait for all that others have to send.
#[test]
fn a_short_message_passes_the_bulk_of_its_host() {
    let mut sim = sim(3, 25);
    for _ in 0..16 {
        add(&mut sim, StreamOp::Write, 0, 1, 1 << 20, 4);
    }
    let short = add(&mut sim, StreamOp::Write, 0, 2, 8, 1);
    sim.run_for(Span::from_ms(5));
    sim.verdict().expect("all holds");
    let rounds = sim.stream(short).completed;
    // Sixteen packets of 1106 bytes at 25 Gb/s are 5.7 us; a message has to wait for what the adapter holds.
    assert!(rounds > 1500, "{rounds} in 5 ms: more than 3.3 us each");
}
