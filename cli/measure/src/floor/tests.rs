use std::collections::HashSet;
use std::thread;

use super::packets::{BatchLimits, Incoming, Outgoing, REGION_LEN, packet_len, packets_in_message};
use super::*;

/// A receiver that ends by itself when the test's sender is silent: not waited for.
fn start_receiver(measure: Measure, config: &FloorConfig) -> SocketAddr {
    let socket = bind(config.receiver, measure).expect("bind");
    let addr = socket.local_addr();
    let config = config.clone();
    thread::spawn(move || match measure {
        Measure::Bandwidth => bandwidth::receive(&socket, &config),
        Measure::Latency => latency::pong(&socket, &config),
    });
    addr
}

fn outgoing(config: &FloorConfig) -> (Outgoing, UdpSocket) {
    let socket = bind(config.sender, Measure::Bandwidth).expect("bind");
    let to = SocketAddr::new(config.receiver, 4791);
    (
        Outgoing::new(config, to, BatchLimits::new(&socket), REGION_LEN),
        socket,
    )
}

#[test]
fn messages_are_cut_as_roce_cuts_them() {
    for (message, lens) in [
        (0, vec![32]),
        (1, vec![36]),
        (8, vec![40]),
        (1024, vec![1056]),
        (1025, vec![1056, 20]),
        (3000, vec![1056, 1040, 968]),
    ] {
        let config = FloorConfig::write(message, 1024);
        let (mut outgoing, _socket) = outgoing(&config);
        assert_eq!(packets_in_message(&config), lens.len());
        outgoing.gather(3 * lens.len());
        let cut: Vec<usize> = outgoing.packets().map(<[u8]>::len).collect();
        assert_eq!(cut, lens.repeat(3), "message of {message}");
        for run in outgoing.transmits() {
            assert!(run.segments() <= 64 && run.len as usize <= urxe_udp::Caps::PAYLOAD_MAX);
        }
    }
    assert_eq!(packet_len(28, 1023), 28 + 1024 + 4);
}

#[test]
fn packets_arrive_as_they_were_sent_or_are_bad() {
    for (message, mtu) in [(8, 1024), (1023, 1024), (5000, 1024), (1 << 20, 4096)] {
        let config = FloorConfig::write(message, mtu);
        let (mut outgoing, _socket) = outgoing(&config);
        let mut incoming = Incoming::new(&config, REGION_LEN);
        outgoing.gather(100);
        let numbers: Vec<_> = outgoing
            .packets()
            .map(|packet| incoming.take(packet))
            .collect();
        assert_eq!(numbers, (0..100).map(Some).collect::<Vec<_>>());
        outgoing.gather(1);
        let mut packet = outgoing.packets().next().expect("one").to_vec();
        for at in [0, 8, 27, 28, packet.len() - 5, packet.len() - 1] {
            packet[at] ^= 0x10;
            assert_eq!(incoming.take(&packet), None, "changed at {at}");
            packet[at] ^= 0x10;
        }
        for len in 0..packet.len().min(40) {
            assert_eq!(incoming.take(&packet[..len]), None, "cut to {len}");
        }
        assert_eq!(incoming.take(&packet), Some(100));
        assert_eq!(incoming.packets - incoming.bad, 101);
    }
}

#[test]
fn full_batches_are_four_runs() {
    for (message, mtu, runs) in [(8, 1024, 4), (1024, 1024, 4), (4096, 4096, 4)] {
        let (mut outgoing, socket) = outgoing(&FloorConfig::write(message, mtu));
        if !socket.caps().gso() {
            println!("skipped: no segmentation offload here");
            return;
        }
        outgoing.gather(outgoing.batch_packets_max());
        assert!(
            outgoing.transmits().len() <= runs + 1,
            "{:?}",
            outgoing.transmits()
        );
    }
}

/// A sample in which something arrived. Where the machine is busy with others the receiver may get no processor for all
/// of a short one: then the next is longer.
fn stream(message: usize, mtu: usize) -> FloorBandwidth {
    for tenths in 1..=20 {
        let config = FloorConfig {
            duration: Duration::from_millis(100 * tenths),
            cpus: None,
            ..FloorConfig::write(message, mtu)
        };
        let to = start_receiver(Measure::Bandwidth, &config);
        let socket = bind(config.sender, Measure::Bandwidth).expect("bind");
        let result = bandwidth::send(&socket, &config, to).expect("a result");
        if result.msg_per_s > 1.0 {
            return result;
        }
    }
    panic!("nothing flows");
}

#[test]
fn a_stream_flows() {
    for (message, mtu) in [(8, 1024), (1 << 20, 1024)] {
        let result = stream(message, mtu);
        let bits = result.msg_per_s * message as f64 * 8.0;
        assert!((bits / 1e9 - result.gbit_per_s).abs() < 1e-6 * result.gbit_per_s);
    }
}

#[test]
fn messages_come_back() {
    for (message, wait) in [(0, Wait::Spin), (8, Wait::Block), (10_000, Wait::Spin)] {
        let base = FloorConfig::write(message, 1024);
        let config = FloorConfig {
            rounds: 200,
            wait,
            cpus: None,
            ..base
        };
        let to = start_receiver(Measure::Latency, &config);
        let socket = bind(config.sender, Measure::Latency).expect("bind");
        let result = latency::ping(&socket, &config, to).expect("a result");
        assert!(
            result.p50_us > 0.0 && result.p50_us <= result.p99_us,
            "{result:?}"
        );
    }
}

/// Both sides of a measurement in memory, as two threads.
fn in_memory<T>(
    config: &FloorConfig,
    receiver: fn(&FloorConfig, std::net::UdpSocket) -> Result<(), CliError>,
    sender: impl FnOnce(&FloorConfig, SocketAddr) -> Result<T, CliError>,
) -> T {
    let socket = std::net::UdpSocket::bind((config.receiver, 0)).expect("bind");
    let to = socket.local_addr().expect("it is bound");
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receiver(config, socket));
        let result = sender(config, to).expect("a result");
        let end = receiver.join().expect("no panic");
        end.expect("it ends with the sender");
        result
    })
}

#[test]
fn a_stream_flows_through_memory() {
    for message in [8, 48, 10_000, 1 << 20, 5 << 20] {
        let config = FloorConfig {
            duration: Duration::from_millis(20),
            ..FloorConfig::write(message, 1024)
        };
        let result = in_memory(&config, memory::receive, memory::send);
        assert!(result.msg_per_s > 0.0, "{result:?}");
        let bits = result.msg_per_s * message as f64 * 8.0;
        assert!((bits / 1e9 - result.gbit_per_s).abs() < 1e-6 * result.gbit_per_s);
    }
}

#[test]
fn messages_come_back_through_memory_as_they_were() {
    for (message, wait) in [(0, Wait::Spin), (8, Wait::Block), (20_000, Wait::Spin)] {
        let config = FloorConfig {
            rounds: 200,
            wait,
            ..FloorConfig::write(message, 1024)
        };
        let result = in_memory(&config, memory::pong, memory::ping);
        assert!(
            result.p50_us > 0.0 && result.p50_us <= result.p99_us,
            "{result:?}"
        );
        in_memory(&config, memory::pong, |config, to| {
            let mut ends = memory::Ends::at_sender(config, to)?;
            ends.send()?;
            assert!(ends.receive()? && ends.received_what_was_sent());
            Ok(())
        });
    }
}

#[test]
fn a_silent_receiver_is_an_error() {
    let config = FloorConfig {
        rounds: 1,
        cpus: None,
        ..FloorConfig::write(8, 1024)
    };
    let deaf = bind(config.receiver, Measure::Latency).expect("bind");
    let socket = bind(config.sender, Measure::Latency).expect("bind");
    let error = latency::ping(&socket, &config, deaf.local_addr()).expect_err("nobody answers");
    assert!(error.to_string().contains("lost"), "{error}");
}

#[test]
fn impossible_packets_are_refused() {
    let ok = FloorConfig::write(8, 1024);
    ok.check().expect("possible");
    for bad in [
        FloorConfig {
            mtu: 0,
            ..ok.clone()
        },
        FloorConfig {
            mtu: 65_500,
            ..ok.clone()
        },
        FloorConfig {
            header: 8,
            ..ok.clone()
        },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
    let distinct: HashSet<IpAddr> = [ok.sender, ok.receiver].into();
    assert_eq!(distinct.len(), 2, "the two sides have their own addresses");
}
