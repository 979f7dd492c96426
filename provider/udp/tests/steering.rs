//! Several sockets on one port, and the program that chooses among them.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use urxe_udp::{Dest, RecvBatch, SendBatch, SendOutcome, Steering, Transmit, UdpConfig, UdpSocket};

const PROBE: [u8; 4] = *b"\xffwho";

fn steering<'a>(map: &'a [(u32, u32)]) -> Steering<'a> {
    Steering {
        probe: PROBE,
        offset: 4,
        mask: 0x00ff_ffff,
        shift: 12,
        by_other: None,
        map,
    }
}

/// `count` sockets on one port of loopback, in the order in which they were bound.
fn group(ip: &str, count: usize) -> Vec<UdpSocket> {
    let config = UdpConfig {
        reuse_port: true,
        ..UdpConfig::default()
    };
    let first = UdpSocket::bind(format!("{ip}:0").parse().expect("literal"), &config);
    let first = first.expect("loopback");
    let addr = first.local_addr();
    let mut sockets = vec![first];
    sockets.extend((1..count).map(|_| UdpSocket::bind(addr, &config).expect("shared")));
    sockets
}

fn send(from: &UdpSocket, to: &UdpSocket, bytes: &[u8], segment: usize) {
    let dest = Dest::new(to.local_addr());
    let transmit = Transmit::run(0..bytes.len(), segment, dest);
    let transmits = [transmit];
    let outcome = from.send(SendBatch {
        bytes,
        transmits: &transmits,
    });
    assert!(matches!(outcome, SendOutcome::All { .. }), "{outcome:?}");
}

/// The datagrams that a socket has, joined.
fn received(socket: &UdpSocket) -> usize {
    let mut batch = RecvBatch::new(8);
    let mut packets = 0;
    while socket.recv(&mut batch).expect("receives") > 0 {
        packets += batch.iter().map(|d| d.segments().count()).sum::<usize>();
    }
    packets
}

/// A datagram with `chunk` in its second word, shifted to where it is looked for.
fn datagram(chunk: u32) -> Vec<u8> {
    let mut bytes = vec![0x11; 64];
    bytes[4..8].copy_from_slice(&(0x4000_0321 | chunk << 12).to_be_bytes());
    bytes
}

#[test]
fn each_socket_gets_what_the_map_gives_it() {
    for ip in ["127.0.0.1", "[::1]"] {
        let sockets = group(ip, 3);
        let map = [(0, 2), (100, 0), (200, 1), (300, 2)];
        let program = steering(&map).program().expect("short");
        sockets[1].attach_steering(&program).expect("attached");
        let stranger = UdpSocket::bind(
            format!("{ip}:0").parse().expect("literal"),
            &UdpConfig::default(),
        )
        .expect("loopback");
        for (chunk, owner) in [(0, 2), (99, 2), (100, 0), (199, 0), (250, 1), (4095, 2)] {
            send(&stranger, &sockets[0], &datagram(chunk), 0);
            for (number, socket) in sockets.iter().enumerate() {
                let expected = usize::from(number == owner);
                assert_eq!(received(socket), expected, "chunk {chunk}, socket {number}");
            }
            // A train goes where its first packet goes, whole.
            let train = [datagram(chunk), datagram(chunk), datagram(chunk)].concat();
            send(&stranger, &sockets[0], &train, 64);
            assert_eq!(received(&sockets[owner]), 3, "chunk {chunk}");
        }
        // Without a program the kernel chooses, and loses nothing.
        sockets[0].detach_steering();
        send(&stranger, &sockets[0], &datagram(100), 0);
        assert_eq!(sockets.iter().map(received).sum::<usize>(), 1);
        sockets[2]
            .attach_steering(&program)
            .expect("attached again");
        // A socket finds out its own number.
        for (number, socket) in sockets.iter().enumerate() {
            let probe = [&PROBE[..], &(number as u32).to_be_bytes(), b"nonce"].concat();
            send(socket, socket, &probe, 0);
            assert_eq!(received(socket), 1, "{ip}: number {number}");
        }
    }
}

/// What the owners of a shared port have to live with.
#[test]
fn when_a_socket_closes_the_last_takes_its_number() {
    let mut sockets = group("127.0.0.1", 3);
    let map = [(0, 0), (100, 1), (200, 2)];
    let program = steering(&map).program().expect("short");
    sockets[0].attach_steering(&program).expect("attached");
    sockets.remove(0);
    let [one, two] = &sockets[..] else { panic!() };
    send(one, one, &datagram(50), 0);
    assert_eq!((received(one), received(two)), (0, 1));
    // A number that is not there any more: the kernel chooses.
    send(one, one, &datagram(250), 0);
    assert_eq!(received(one) + received(two), 1);
}

#[test]
fn a_socket_by_itself_cannot_be_steered() {
    let alone = UdpSocket::bind(
        "127.0.0.1:0".parse().expect("literal"),
        &UdpConfig::default(),
    );
    let program = steering(&[(0, 0)]).program().expect("short");
    let alone = alone.expect("loopback");
    // Some kernels accept it and make a group of one; nothing is lost either way.
    let _ = alone.attach_steering(&program);
    send(&alone, &alone, &datagram(1), 0);
    assert_eq!(received(&alone), 1);
}
