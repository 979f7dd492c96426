//! What strangers say to a datagram socket.

use core::net::SocketAddr;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use urxe::cm::UDP_QKEY;
use urxe::{Context, QpType, Qpn, SendWr};

use super::wire::{Introduction, header};
use super::{Datagram, Errno};
use crate::rsocket::alone::{OWN, address, alone};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn socket() -> Datagram {
    let socket = Datagram::new(libc::AF_INET).expect("a socket");
    socket.bind(SocketAddr::new(address(OWN), 0)).expect("free");
    socket
}

fn name(socket: &Datagram) -> SocketAddr {
    socket.address(false).expect("it is bound")
}

/// The next datagram, if there is one.
fn recv(socket: &Datagram) -> Option<(Vec<u8>, SocketAddr)> {
    let mut bytes = [0; 100];
    match socket.recv(&mut [&mut bytes], libc::MSG_DONTWAIT) {
        Ok((len, from)) => Some((bytes[..len].to_vec(), from)),
        Err(Errno(libc::EAGAIN)) => None,
        Err(errno) => panic!("{errno:?}"),
    }
}

fn recv_soon(socket: &Datagram) -> (Vec<u8>, SocketAddr) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(received) = recv(socket) {
            return received;
        }
        std::thread::yield_now();
    }
    panic!("nothing came");
}

/// A question and its answer: whatever is said first goes over UDP.
fn talk(friend: &Datagram, server: &Datagram, word: &[u8]) {
    friend.send(&[word], Some(name(server)), 0).expect("sent");
    let (asked, from) = recv_soon(server);
    assert_eq!((&asked[..], from), (word, name(friend)));
    server.send(&[b"answer"], Some(from), 0).expect("sent");
    let (answered, from) = recv_soon(friend);
    assert_eq!((&answered[..], from), (&b"answer"[..], name(server)));
}

fn introduction(ip: std::net::IpAddr, data: &[u8]) -> Vec<u8> {
    let introduction = Introduction {
        is_data: true,
        qpn: 0x1234,
        ip,
    };
    [&introduction.to_bytes(), data].concat()
}

fn stranger(port: u16) -> UdpSocket {
    UdpSocket::bind(SocketAddr::new(address(66), port)).expect("free")
}

#[test]
fn introductions_do_not_fill_the_table_of_peers() {
    alone(
        "rsocket::datagram::tests::introductions_do_not_fill_the_table_of_peers",
        0,
        || {
            let server = socket();
            let (to, stranger) = (name(&server), stranger(0));
            // Of other addresses: not believed. Of its own, from many ports: peers that come later are met all the same.
            for number in 0..5000_u16 {
                let other = std::net::IpAddr::from([10, 9, (number >> 8) as u8, number as u8]);
                let sent = stranger.send_to(&introduction(other, b"forged"), to);
                sent.expect("loopback takes it");
                assert_eq!(recv(&server), None, "it counts as from {other}");
            }
            assert!(server.lock().dropped.forged > 0, "they are counted");
            for number in 0..5000_u16 {
                let one = UdpSocket::bind(SocketAddr::new(address(66), 10_000 + number));
                let one = one.expect("free");
                one.send_to(&introduction(address(66), b"real"), to)
                    .expect("loopback takes it");
                let (data, from) = recv_soon(&server);
                assert_eq!(data, b"real");
                assert_eq!(from, one.local_addr().expect("bound"));
                if number % 500 == 0 {
                    talk(&socket(), &server, b"question");
                }
            }
            talk(&socket(), &server, b"question");
        },
    );
}

#[test]
fn an_introduction_diverts_no_answers_of_others() {
    alone(
        "rsocket::datagram::tests::an_introduction_diverts_no_answers_of_others",
        1,
        || {
            let (server, friend) = (socket(), socket());
            talk(&friend, &server, b"question");
            let stranger = stranger(name(&friend).port());
            for _ in 0..5 {
                stranger
                    .send_to(&introduction(address(OWN), b""), name(&server))
                    .expect("loopback takes it");
                talk(&friend, &server, b"another");
            }
        },
    );
}

/// Neither over UDP nor from a queue pair.
#[test]
fn nobody_speaks_in_anothers_name() {
    alone(
        "rsocket::datagram::tests::nobody_speaks_in_anothers_name",
        2,
        || {
            let (server, friend) = (socket(), socket());
            talk(&friend, &server, b"question");
            stranger(0)
                .send_to(&introduction(address(OWN), b"forged"), name(&server))
                .expect("loopback takes it");
            // A stranger's queue pair, which knows the server's.
            let context = Context::open(address(77)).expect("free");
            let pd = context.alloc_pd().expect("room");
            let cq = context.create_cq(16).expect("room");
            let qp = pd.qp(&cq).qp_type(QpType::Ud).max_inline_data(64);
            let qp = qp.create().expect("room");
            qp.start_datagrams(UDP_QKEY).expect("it is new");
            let qpn = server.lock().ends[0].qp.qp_num();
            let way = pd.create_ah(&urxe::AddressVector {
                local: address(77),
                remote: address(OWN),
                traffic_class: 0,
                hop_limit: 64,
            });
            let way = way.expect("a way");
            for (claimed, text) in [(OWN, "forged"), (77, "real")] {
                let claimed = SocketAddr::new(address(claimed), 1);
                let message = [&header(claimed)[..], text.as_bytes()].concat();
                let send = SendWr::send_inline(1, &message).signaled();
                let send = send.ud_addr(&way, Qpn::new(qpn.get()), UDP_QKEY);
                qp.post_send(&send).expect("room");
                cq.poll_one().expect("polls").ok().expect("sent");
            }
            // The first that comes is the one that is true.
            let (data, from) = recv_soon(&server);
            assert_eq!(
                (&data[..], from),
                (&b"real"[..], SocketAddr::new(address(77), 1))
            );
            assert_eq!(recv(&server), None);
        },
    );
}

/// Each message that arrived is received or counted.
#[test]
fn what_is_dropped_is_counted() {
    alone(
        "rsocket::datagram::tests::what_is_dropped_is_counted",
        3,
        || {
            let server = socket();
            let (to, stranger) = (name(&server), stranger(0));
            let room = server.lock().settings.bounded().recv_depth as usize;
            let send = |bytes: &[u8]| {
                stranger.send_to(bytes, to).expect("loopback takes it");
                // Taken in, and not received.
                server.ready(libc::POLLIN);
            };
            for _ in 0..room + 3 {
                send(&introduction(address(66), b"real"));
            }
            send(&introduction(address(OWN), b"forged"));
            send(b"strange");
            let counted = {
                let state = server.lock();
                let dropped = &state.dropped;
                (dropped.no_room, dropped.forged, dropped.strange)
            };
            assert_eq!(counted, (3, 1, 1));
            for _ in 0..room {
                assert_eq!(recv_soon(&server).0, b"real");
            }
            assert_eq!(recv(&server), None);
        },
    );
}
