//! The portable backend beside the native one.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpConfig, fallback};

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("literal")
}

#[test]
fn the_portable_backend_connects_no_sockets() {
    let beside = fallback::UdpSocket::bind(any_port(), &UdpConfig::default()).expect("bind");
    let to = fallback::UdpSocket::bind(any_port(), &UdpConfig::default()).expect("bind");
    match fallback::ConnectedSocket::open(&beside, 0, to.local_addr()) {
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
        Ok(mut socket) => {
            let all = (socket.port(), socket.ident(), socket.send(&[]));
            panic!("{all:?}");
        }
    }
}

/// Packets that the portable backend sends reach the native one, and back.
#[test]
fn backends_understand_each_other() {
    let config = UdpConfig::default();
    let native = crate::UdpSocket::bind(any_port(), &config).expect("bind");
    let portable = fallback::UdpSocket::bind(any_port(), &config).expect("bind");
    let bytes = [7u8; 300];
    let mut batch = RecvBatch::new(4);
    let patience = Some(Duration::from_secs(5));

    let to_native = Dest::new(native.local_addr());
    let transmits = [
        Transmit::single(0..100, to_native),
        Transmit::single(100..300, to_native),
    ];
    let outcome = portable.send(SendBatch {
        bytes: &bytes,
        transmits: &transmits,
    });
    assert!(
        matches!(outcome, SendOutcome::All { sent: 2 }),
        "{outcome:?}"
    );
    let mut lens = Vec::new();
    while lens.len() < 2 {
        assert!(
            !crate::wait(&[native.as_fd()], patience)
                .expect("wait")
                .is_timeout()
        );
        native.recv(&mut batch).expect("recv");
        lens.extend(batch.iter().map(|d| (d.data.len(), d.source)));
    }
    assert_eq!(
        lens,
        [(100, portable.local_addr()), (200, portable.local_addr())]
    );

    let transmit = [Transmit::single(0..300, Dest::new(portable.local_addr()))];
    let outcome = native.send(SendBatch {
        bytes: &bytes,
        transmits: &transmit,
    });
    assert!(
        matches!(outcome, SendOutcome::All { sent: 1 }),
        "{outcome:?}"
    );
    assert!(
        !crate::wait(&[portable.as_fd()], patience)
            .expect("wait")
            .is_timeout()
    );
    assert_eq!(portable.recv(&mut batch).expect("recv"), 1);
    let datagram = batch.iter().next().expect("one");
    assert_eq!(datagram.data, bytes);
    assert_eq!(datagram.source, native.local_addr());
    assert_eq!(datagram.dst_ip, Some(portable.local_addr().ip()));
    assert_eq!(portable.recv(&mut batch).expect("recv"), 0);
}

/// It refuses runs, having sent what stands before them.
#[test]
fn portable_backend_refuses_runs() {
    let socket = fallback::UdpSocket::bind(any_port(), &UdpConfig::default()).expect("bind");
    socket.report_tos().expect("nothing to fail");
    let to_self = Dest::new(socket.local_addr());
    let transmits = [
        Transmit::single(0..10, to_self),
        Transmit::run(10..90, 20, to_self),
    ];
    let outcome = socket.send(SendBatch {
        bytes: &[0; 90],
        transmits: &transmits,
    });
    assert!(
        matches!(outcome, SendOutcome::GsoRefused { sent: 1 }),
        "{outcome:?}"
    );
    let error = socket.receive_drops().expect_err("no portable way to ask");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert!(!socket.caps().gso() && socket.caps().gso_segments_max() == 1);
}

/// The portable backend says that it cannot, and goes on.
#[test]
fn only_linux_steers() {
    let steering = crate::Steering {
        probe: [0; 4],
        offset: 4,
        mask: 1,
        shift: 0,
        by_other: None,
        map: &[(0, 0)],
    };
    let program = steering.program().expect("short");
    let portable = fallback::UdpSocket::bind(any_port(), &UdpConfig::default()).expect("bind");
    let error = portable.attach_steering(&program).expect_err("it cannot");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    portable.detach_steering();
    portable.join_packets();
}

/// The portable backend knows no groups, and says so.
#[test]
fn only_linux_joins_groups() {
    let config = UdpConfig::default();
    let portable = fallback::UdpSocket::bind(any_port(), &config).expect("bind");
    let (group, local) = ("239.1.2.3:0".parse().expect("literal"), any_port().ip());
    for refused in [
        fallback::UdpSocket::bind_group(group, local, 0, &config).map(drop),
        portable.send_to_groups(0, 1),
    ] {
        let error = refused.expect_err("it cannot");
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    }
}
