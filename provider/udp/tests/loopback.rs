//! Two sockets on one host, over both IP versions.

mod common;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use common::{PATIENCE, dest, eager, is_empty, loopback, pattern, receive, send_all};
use urxe_udp::{Caps, Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket};

const BOTH: [bool; 2] = [false, true];

#[test]
fn single_packets_arrive_with_their_sender() {
    for ipv6 in BOTH {
        let (a, b) = (
            loopback(ipv6, &UdpConfig::default()),
            loopback(ipv6, &UdpConfig::default()),
        );
        let bytes = pattern(5000);
        let transmits = [
            Transmit::single(0..1, dest(&b)),
            Transmit::single(1..4097, dest(&b)),
            Transmit::single(4097..4097, dest(&b)),
            Transmit::single(4097..5000, dest(&b)),
        ];
        assert_eq!(send_all(&a, &bytes, &transmits), 0);
        let packets = receive(&b, 4);
        for (packet, transmit) in packets.iter().zip(&transmits) {
            assert_eq!(packet.bytes, bytes[transmit.range()]);
            assert_eq!((packet.source, packet.index), (a.local_addr(), 0));
        }
        assert!(is_empty(&b));
    }
}

/// A run leaves as one descriptor and arrives as one datagram; the last packet may be
/// shorter.
#[test]
fn a_run_arrives_as_one_train() {
    for ipv6 in BOTH {
        let (a, b) = (loopback(ipv6, &eager()), loopback(ipv6, &eager()));
        if !a.caps().gso() || !b.caps().gro() {
            println!("skipped: this kernel has no UDP segmentation offload");
            return;
        }
        let bytes = pattern(9 * 1040 + 17);
        let outcome = a.send(SendBatch {
            bytes: &bytes,
            transmits: &[Transmit::run(0..bytes.len(), 1040, dest(&b))],
        });
        assert!(
            matches!(outcome, SendOutcome::All { sent: 1 }),
            "{outcome:?}"
        );
        let ready = urxe_udp::wait(&[b.as_fd()], Some(PATIENCE)).expect("wait");
        assert!(ready.is_ready(0));
        let mut batch = RecvBatch::new(1);
        assert_eq!(b.recv(&mut batch).expect("recv"), 1);
        let datagram = batch.iter().next().expect("one datagram");
        assert_eq!((datagram.data, datagram.segment_size), (&*bytes, 1040));
        assert_eq!(datagram.dst_ip, Some(b.local_addr().ip()));
        let places: Vec<_> = datagram
            .segments()
            .map(|(k, packet)| (k, packet.len()))
            .collect();
        let mut expected: Vec<_> = (0..9).map(|k| (k, 1040)).collect();
        expected.push((9, 17));
        assert_eq!(places, expected);
    }
}

/// Every combination of offloads on the two sides moves the same packets.
#[test]
fn all_offload_settings_interoperate() {
    for ipv6 in BOTH {
        for bits in 0..16u8 {
            let config = |shift: u8| UdpConfig {
                gso: bits >> shift & 1 != 0,
                gro: bits >> (shift + 1) & 1 != 0,
                ..UdpConfig::default()
            };
            let (a, b) = (loopback(ipv6, &config(0)), loopback(ipv6, &config(2)));
            let bytes = pattern(40 * 1000 + 3);
            let transmits = [
                Transmit::single(0..1000, dest(&b)),
                Transmit::run(1000..bytes.len(), 1000, dest(&b)),
            ];
            let refused = send_all(&a, &bytes, &transmits);
            assert_eq!(refused, usize::from(!a.caps().gso()), "settings {bits:04b}");
            let packets = receive(&b, 41);
            for (packet, expected) in packets.iter().zip(bytes.chunks(1000)) {
                assert_eq!(packet.bytes, expected, "settings {bits:04b}");
            }
            assert!(is_empty(&b), "settings {bits:04b}");
        }
    }
}

/// Joining that begins on demand loses and mixes up nothing when it begins.
#[test]
fn joining_begins_in_the_middle_of_a_burst() {
    let (a, b) = (
        loopback(false, &UdpConfig::default()),
        loopback(false, &UdpConfig::default()),
    );
    if !a.caps().gso() || !b.caps().gro() {
        println!("skipped: this kernel has no UDP segmentation offload");
        return;
    }
    let bytes = pattern(64 * 500);
    let mut places = Vec::new();
    for _ in 0..4 {
        send_all(&a, &bytes, &[Transmit::run(0..bytes.len(), 500, dest(&b))]);
        let packets = receive(&b, 64);
        let joined: Vec<u8> = packets.iter().flat_map(|p| p.bytes.clone()).collect();
        assert_eq!(joined, bytes);
        places.push(packets[63].index);
    }
    assert_eq!(
        (places[0], places[3]),
        (0, 63),
        "first singly, then as a train"
    );
}

#[test]
fn traffic_class_travels() {
    for ipv6 in BOTH {
        let by_default = UdpConfig {
            tos: 0x02,
            ..eager()
        };
        let (a, b) = (loopback(ipv6, &by_default), loopback(ipv6, &eager()));
        let bytes = pattern(600);
        let classes = [0x02, 0x01, 0x6a, 0xc3, 0x00];
        let transmits: Vec<_> = classes
            .iter()
            .enumerate()
            .map(|(k, &tos)| Transmit::single(k * 100..(k + 1) * 100, dest(&b)).with_tos(tos))
            .collect();
        send_all(&a, &bytes, &transmits);
        let run = Transmit::run(0..600, 200, dest(&b)).with_tos(0x03);
        send_all(&a, &bytes, &[run]);
        let got: Vec<u8> = receive(&b, 8).iter().map(|p| p.tos).collect();
        assert_eq!(got, [0x02, 0x01, 0x6a, 0xc3, 0x00, 0x03, 0x03, 0x03]);
    }
}

/// Without anything to be told about packets they arrive all the same, and the traffic
/// class from the moment on that it is asked for.
#[test]
fn traffic_class_is_reported_when_asked_for() {
    for ipv6 in BOTH {
        let quiet = UdpConfig {
            recv_tos: false,
            ..UdpConfig::default()
        };
        let (a, b) = (loopback(ipv6, &quiet), loopback(ipv6, &quiet));
        let bytes = pattern(100);
        let packet = Transmit::single(0..100, dest(&b)).with_tos(0x6a);
        send_all(&a, &bytes, &[packet]);
        let got = receive(&b, 1);
        assert_eq!((got[0].tos, &got[0].bytes), (0, &bytes));
        b.report_tos().expect("the system takes it");
        send_all(&a, &bytes, &[packet]);
        let got = receive(&b, 1);
        assert_eq!((got[0].tos, &got[0].bytes), (0x6a, &bytes));
    }
}

/// A socket on all addresses tells where a packet was sent to, and sends from where it
/// is told.
#[test]
fn wildcard_socket_knows_and_chooses_its_address() {
    let config = UdpConfig::default();
    for (any, one, other) in [("0.0.0.0", "127.0.0.1", "127.0.0.7"), ("::", "::1", "::1")] {
        let parse = |ip: &str| ip.parse::<IpAddr>().expect("literal");
        let at_all = UdpSocket::bind(SocketAddr::new(parse(any), 0), &config).expect("bind");
        let peer = UdpSocket::bind(SocketAddr::new(parse(one), 0), &config).expect("bind");
        let port = at_all.local_addr().port();
        let to = Dest::new(SocketAddr::new(parse(other), port));
        send_all(&peer, b"hello", &[Transmit::single(0..5, to)]);
        let ready = urxe_udp::wait(&[at_all.as_fd()], Some(PATIENCE)).expect("wait");
        assert!(ready.is_ready(0));
        let mut batch = RecvBatch::new(2);
        assert_eq!(at_all.recv(&mut batch).expect("recv"), 1);
        let datagram = batch.iter().next().expect("one");
        assert_eq!(datagram.dst_ip, Some(parse(other)));
        let reply = Transmit::single(0..5, dest(&peer)).with_src_ip(parse(other));
        send_all(&at_all, b"there", &[reply]);
        assert_eq!(
            receive(&peer, 1)[0].source,
            SocketAddr::new(parse(other), port)
        );
    }
}

/// What cannot be sent is named, and what stands after it goes when asked again.
#[test]
fn one_bad_descriptor_harms_no_other() {
    for ipv6 in BOTH {
        let (a, b) = (loopback(ipv6, &eager()), loopback(ipv6, &eager()));
        let bytes = pattern(1 << 17);
        let too_long = if ipv6 { 65_536 } else { Caps::PAYLOAD_MAX + 1 };
        let other_family = dest(&loopback(!ipv6, &UdpConfig::default()));
        let no_port = Dest::new(SocketAddr::new(b.local_addr().ip(), 0));
        let bad = [
            Transmit::single(0..too_long, dest(&b)),
            Transmit::run(0..too_long, 1000, dest(&b)),
            Transmit::single(0..10, no_port),
            Transmit::single(0..10, other_family),
            Transmit::single(0..10, dest(&b)).with_src_ip(other_family.addr().ip()),
            Transmit::run(0..20, 10, dest(&b)).with_src_ip(other_family.addr().ip()),
            Transmit::single(0..10, Dest::new(unroutable(ipv6))),
        ];
        for transmit in bad {
            let good = Transmit::single(0..3, dest(&b));
            let transmits = [good, transmit, good];
            let outcome = a.send(SendBatch {
                bytes: &bytes,
                transmits: &transmits,
            });
            assert!(
                matches!(outcome, SendOutcome::Failed { sent: 1, .. }),
                "{transmit:?}: {outcome:?}"
            );
            let outcome = a.send(SendBatch {
                bytes: &bytes,
                transmits: &transmits[2..],
            });
            assert!(
                matches!(outcome, SendOutcome::All { sent: 1 }),
                "{outcome:?}"
            );
            assert_eq!(receive(&b, 2).len(), 2);
            assert!(is_empty(&b));
        }
        // As a run, what is wrong with the port may look like a refusal of the run; sent
        // singly it shows.
        let run = Transmit::run(0..20, 10, no_port);
        let outcome = a.send(SendBatch {
            bytes: &bytes,
            transmits: &[run],
        });
        assert!(
            matches!(outcome, SendOutcome::GsoRefused { sent: 0 }),
            "{outcome:?}"
        );
        let singles: Vec<_> = run.singles().collect();
        let outcome = a.send(SendBatch {
            bytes: &bytes,
            transmits: &singles,
        });
        assert!(
            matches!(outcome, SendOutcome::Failed { sent: 0, .. }),
            "{outcome:?}"
        );
        // None of it was the offload's fault.
        assert!(a.caps().gso() && a.caps().gso_segments_max() >= Caps::GSO_SEGMENTS_MIN);
    }
}

/// An address that a loopback-bound socket cannot reach.
fn unroutable(ipv6: bool) -> SocketAddr {
    // Broadcast, which this socket may not; an IPv4 address in disguise.
    if ipv6 {
        "[::ffff:203.0.113.1]:4791"
    } else {
        "255.255.255.255:4791"
    }
    .parse()
    .expect("literal")
}

#[test]
fn length_limits_are_exact() {
    for ipv6 in BOTH {
        let (a, b) = (loopback(ipv6, &eager()), loopback(ipv6, &eager()));
        let bytes = pattern(1 << 16);
        // Over IPv6 the 65,536 bytes of the loopback device's MTU are the limit.
        let longest = if ipv6 { 65_536 - 48 } else { Caps::PAYLOAD_MAX };
        send_all(&a, &bytes, &[Transmit::single(0..longest, dest(&b))]);
        assert_eq!(receive(&b, 1)[0].bytes, bytes[..longest]);
        let run = Transmit::run(0..Caps::PAYLOAD_MAX, 4112, dest(&b));
        send_all(&a, &bytes, &[run]);
        assert_eq!(receive(&b, 16)[15].bytes.len(), Caps::PAYLOAD_MAX % 4112);
        let most = a.caps().gso_segments_max();
        send_all(&a, &bytes, &[Transmit::run(0..most * 40, 40, dest(&b))]);
        assert_eq!(receive(&b, most).len(), most);
        let transmits = [
            Transmit::single(0..9, dest(&b)),
            Transmit::run(0..most * 40 + 1, 40, dest(&b)),
        ];
        let outcome = a.send(SendBatch {
            bytes: &bytes,
            transmits: &transmits,
        });
        assert!(
            matches!(outcome, SendOutcome::GsoRefused { sent: 1 }),
            "{outcome:?}"
        );
    }
}

#[test]
fn long_batches_leave_in_order() {
    let (a, b) = (loopback(false, &eager()), loopback(false, &eager()));
    let bytes = pattern(300);
    let transmits: Vec<_> = (0..300)
        .map(|k| Transmit::single(k..k + 1, dest(&b)))
        .collect();
    send_all(&a, &bytes, &transmits);
    let got: Vec<u8> = receive(&b, 300).into_iter().flat_map(|p| p.bytes).collect();
    assert_eq!(got, bytes);
}

#[test]
fn too_short_slots_are_told() {
    let (a, b) = (loopback(false, &eager()), loopback(false, &eager()));
    send_all(&a, &pattern(100), &[Transmit::single(0..100, dest(&b))]);
    assert!(
        urxe_udp::wait(&[b.as_fd()], Some(PATIENCE))
            .expect("wait")
            .is_ready(0)
    );
    let mut batch = RecvBatch::with_slot_len(2, 60);
    assert_eq!(b.recv(&mut batch).expect("recv"), 1);
    let datagram = batch.iter().next().expect("one");
    assert!(datagram.truncated);
    assert_eq!(datagram.data, &pattern(100)[..60]);
}

#[test]
fn a_taken_port_is_an_error() {
    for ipv6 in BOTH {
        let config = UdpConfig::default();
        let first = loopback(ipv6, &config);
        let error = UdpSocket::bind(first.local_addr(), &config).expect_err("it is taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let sharing = UdpConfig {
            reuse_port: true,
            ..config
        };
        let error = UdpSocket::bind(first.local_addr(), &sharing).expect_err("not shared");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let second = loopback(ipv6, &sharing);
        UdpSocket::bind(second.local_addr(), &sharing).expect("both share");
    }
    let elsewhere = "203.0.113.1:0".parse().expect("literal");
    let error = UdpSocket::bind(elsewhere, &UdpConfig::default()).expect_err("not our address");
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
}

/// A packet to an unused port comes back as an ICMP message; neither direction
/// of the socket suffers.
#[test]
fn refused_packets_do_not_wedge_the_socket() {
    for ipv6 in BOTH {
        let (a, b) = (loopback(ipv6, &eager()), loopback(ipv6, &eager()));
        let nobody = dest(&loopback(ipv6, &UdpConfig::default()));
        for _ in 0..3 {
            send_all(&a, b"knock", &[Transmit::single(0..5, nobody)]);
            assert!(is_empty(&a));
            send_all(&a, b"hello", &[Transmit::single(0..5, dest(&b))]);
            assert_eq!(receive(&b, 1)[0].bytes, b"hello");
        }
    }
}

/// What does not fit the receive buffer is lost, and counted.
#[test]
fn overflow_is_counted() {
    let config = UdpConfig {
        recv_buffer: 64 << 10,
        ..eager()
    };
    let (a, b) = (loopback(false, &eager()), loopback(false, &config));
    let bytes = pattern(10_000);
    let transmits = [Transmit::single(0..10_000, dest(&b)); 64];
    send_all(&a, &bytes, &transmits);
    let mut batch = RecvBatch::new(8);
    let mut received = 0;
    loop {
        match b.recv(&mut batch).expect("recv") {
            0 => break,
            count => received += count,
        }
    }
    assert!((1..64).contains(&received), "{received}");
    assert_eq!(b.receive_drops().expect("count") as usize, 64 - received);
}

/// Kernel soft-RoCE sends UDP checksum 0 over IPv6; other sockets never see that.
#[cfg(target_os = "linux")]
#[test]
fn checksum_zero_over_ipv6_is_accepted() {
    use std::os::fd::AsRawFd;
    const UDP_NO_CHECK6_TX: libc::c_int = 101;
    let tx = std::net::UdpSocket::bind("[::1]:0").expect("bind");
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one `int` at `on`.
    let ret = unsafe {
        libc::setsockopt(
            tx.as_raw_fd(),
            libc::IPPROTO_UDP,
            UDP_NO_CHECK6_TX,
            std::ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    assert_eq!(ret, 0, "UDP_NO_CHECK6_TX");
    let ours = loopback(true, &UdpConfig::default());
    let plain = std::net::UdpSocket::bind("[::1]:0").expect("bind");
    plain.set_nonblocking(true).expect("non-blocking");
    // First to the one that must not get it, so that its time has passed when ours has.
    tx.send_to(b"bare", plain.local_addr().expect("bound"))
        .expect("send");
    tx.send_to(b"bare", ours.local_addr()).expect("send");
    assert_eq!(receive(&ours, 1)[0].bytes, b"bare");
    let error = plain
        .recv(&mut [0; 9])
        .expect_err("dropped: the checksum was indeed 0");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}
