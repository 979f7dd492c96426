//! What leaves a socket, seen from the far end of a virtual cable: a veth pair in a
//! network namespace of the test's own. Needs root and the `ip` command; without them
//! every test here says so and is skipped.
#![cfg(target_os = "linux")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;

use common::{PATIENCE, dest, pattern};
use urxe_udp::{
    Caps, ConnectedSocket, Dest, Interest, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket,
    wait_for,
};

/// A neighbour at the far end with a known MAC address: everything reaches the cable.
const KNOWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// One without an answer: packets wait in the kernel for its MAC address.
const UNKNOWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
const MTU: usize = 1500;

#[test]
fn identification_is_the_place_in_the_run() {
    in_namespace("identification_is_the_place_in_the_run", || {
        // The device takes runs of one packet only: the kernel must cut them before it.
        ip("link set va gso_max_segs 1");
        let (socket, tap) = (bound(&UdpConfig::default()), Tap::new("vb"));
        let bytes = pattern(6 * 1040 + 100);
        let single = Transmit::single(0..1040, to(KNOWN));
        let run = Transmit::run(0..bytes.len(), 1040, to(KNOWN));
        send(&socket, &bytes, &[single, single, run, single, run]);
        let seen: Vec<(u16, bool, usize)> = (0..17).map(|_| tap.next_udp()).collect();
        let in_run = (0..7).map(|k| (k, true, if k == 6 { 100 } else { 1040 }));
        let alone = (0, true, 1040);
        let mut expected = vec![alone, alone];
        expected.extend(in_run.clone());
        expected.push(alone);
        expected.extend(in_run);
        assert_eq!(seen, expected, "(identification, don't fragment, payload)");
        assert!(socket.caps().exact_ident());
    });
}

#[test]
fn a_connected_socket_knows_its_identifications() {
    in_namespace("a_connected_socket_knows_its_identifications", || {
        let (socket, tap) = (bound(&UdpConfig::default()), Tap::new("vb"));
        let peer = SocketAddr::from((KNOWN, 4791));
        let mut connected = ConnectedSocket::open(&socket, 0, peer).expect("the kernel can");
        let bytes = pattern(1040);
        for k in 0..300 {
            if k % 3 == 0 {
                let single = Transmit::single(0..1040, to(KNOWN));
                send(&socket, &bytes, &[single]);
                assert_eq!(tap.next_udp(), (0, true, 1040));
            }
            let expected = connected.ident();
            connected.send(&bytes[..k + 1]).expect("sends");
            assert_eq!(tap.next_udp(), (expected, true, k + 1));
        }
    });
}

/// What a thread would send that went to another network namespace would go elsewhere.
#[test]
fn no_socket_is_connected_beside_one_of_another_namespace() {
    let config = UdpConfig::default();
    let outside = UdpSocket::bind("127.0.0.1:0".parse().expect("literal"), &config).expect("bind");
    in_namespace(
        "no_socket_is_connected_beside_one_of_another_namespace",
        move || {
            let error = ConnectedSocket::open(&outside, 0, outside.local_addr());
            let error = error.expect_err("it is in another namespace");
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
            let inside = UdpSocket::bind("127.0.0.1:0".parse().expect("literal"), &config);
            let inside = inside.expect("bind");
            ConnectedSocket::open(&inside, 0, inside.local_addr()).expect("it is in the same");
        },
    );
}

/// Packets too long for the path cost their own sender, not segmentation for all.
#[test]
fn too_long_for_the_path() {
    in_namespace("too_long_for_the_path", || {
        let (socket, tap) = (bound(&UdpConfig::default()), Tap::new("vb"));
        let bytes = pattern(8000);
        for transmit in [
            Transmit::single(0..MTU - 27, to(KNOWN)),
            Transmit::run(0..8000, MTU - 27, to(KNOWN)),
        ] {
            match socket.send(SendBatch {
                bytes: &bytes,
                transmits: &[transmit],
            }) {
                SendOutcome::Failed { sent: 0, error } => {
                    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
                }
                other => panic!("{transmit:?}: {other:?}"),
            }
        }
        assert!(socket.caps().gso());
        assert!(socket.caps().gso_segments_max() >= Caps::GSO_SEGMENTS_MIN);
        send(&socket, &bytes, &[Transmit::single(0..MTU - 28, to(KNOWN))]);
        assert_eq!(tap.next_udp().2, MTU - 28);
    });
}

/// A full send buffer stops a batch in the middle; what is left can go later.
#[test]
fn full_buffer_would_block() {
    in_namespace("full_buffer_would_block", || {
        let small = UdpConfig {
            send_buffer: 16 << 10,
            ..UdpConfig::default()
        };
        let (socket, tap) = (bound(&small), Tap::new("vb"));
        let bytes = pattern(64 * 100);
        let transmits: Vec<_> = (0..64)
            .map(|k| Transmit::single(k * 100..k * 100 + 100 + k, to(UNKNOWN)))
            .collect();
        let bytes = [bytes, pattern(64)].concat();
        let outcome = socket.send(SendBatch {
            bytes: &bytes,
            transmits: &transmits,
        });
        let SendOutcome::WouldBlock { sent } = outcome else {
            panic!("{outcome:?}")
        };
        assert!((1..64).contains(&sent), "{sent}");
        let again = socket.send(SendBatch {
            bytes: &bytes,
            transmits: &transmits[sent..],
        });
        assert!(
            matches!(again, SendOutcome::WouldBlock { sent: 0 }),
            "{again:?}"
        );
        // The neighbour appears: what waited leaves, and there is room again.
        ip(&format!(
            "neigh replace {UNKNOWN} lladdr 02:00:00:00:00:03 dev va nud permanent"
        ));
        let mut rest = &transmits[sent..];
        while !rest.is_empty() {
            let ready = wait_for(&[Interest::writable(socket.as_fd())], Some(PATIENCE));
            assert!(ready.expect("wait").is_writable(0), "never writable");
            match socket.send(SendBatch {
                bytes: &bytes,
                transmits: rest,
            }) {
                SendOutcome::All { sent } | SendOutcome::WouldBlock { sent } => {
                    rest = &rest[sent..];
                }
                other => panic!("{other:?}"),
            }
        }
        let seen: Vec<_> = (0..64).map(|_| tap.next_udp().2).collect();
        assert_eq!(seen, (0..64).map(|k| 100 + k).collect::<Vec<_>>());
    });
}

fn bound(config: &UdpConfig) -> UdpSocket {
    UdpSocket::bind("10.77.0.1:0".parse().expect("literal"), config).expect("bind")
}

fn to(ip: Ipv4Addr) -> Dest {
    Dest::new(SocketAddr::from((ip, 4791)))
}

fn send(socket: &UdpSocket, bytes: &[u8], transmits: &[Transmit]) {
    let outcome = socket.send(SendBatch { bytes, transmits });
    assert!(
        matches!(outcome, SendOutcome::All { .. }),
        "{outcome:?}, {:?}",
        dest(socket)
    );
}

/// Runs `test` in a thread with a network of its own: `va` (10.77.0.1) cabled to `vb`.
fn in_namespace(name: &str, test: impl FnOnce() + Send + 'static) {
    let name = name.to_owned();
    let thread = thread::spawn(move || {
        // SAFETY: takes a number; concerns this thread and its children alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = std::io::Error::last_os_error();
            println!("skipped {name}: no network namespace of its own: {error}");
            return;
        }
        if let Err(error) = Command::new("ip").arg("-V").output() {
            println!("skipped {name}: no `ip` command: {error}");
            return;
        }
        ip("link set lo up");
        ip("link add va type veth peer name vb");
        ip(&format!("link set va mtu {MTU} up"));
        ip("link set vb up");
        ip("addr add 10.77.0.1/24 dev va");
        ip(&format!(
            "neigh add {KNOWN} lladdr 02:00:00:00:00:02 dev va nud permanent"
        ));
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(args: &str) {
    let output = Command::new("ip")
        .args(args.split(' '))
        .output()
        .expect("ip runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {args}: {errors}");
}

/// A packet socket at one end of the cable.
struct Tap {
    fd: OwnedFd,
}

impl Tap {
    fn new(device: &str) -> Tap {
        let protocol = (libc::ETH_P_IP as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        assert!(fd >= 0, "AF_PACKET: {}", std::io::Error::last_os_error());
        // SAFETY: just made, and ours alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = std::ffi::CString::new(device).expect("no zero byte");
        // SAFETY: all zeroes is a valid address structure.
        let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        addr.sll_family = libc::AF_PACKET as u16;
        addr.sll_protocol = protocol;
        // SAFETY: `name` is a C string.
        addr.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
        let len = size_of_val(&addr) as libc::socklen_t;
        // SAFETY: the kernel reads `len` bytes at `addr`.
        let ret = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&addr).cast(), len) };
        assert_eq!(
            ret,
            0,
            "bind to {device}: {}",
            std::io::Error::last_os_error()
        );
        Tap { fd }
    }

    /// Identification, Don't Fragment and UDP payload length of the next UDP packet.
    fn next_udp(&self) -> (u16, bool, usize) {
        use std::os::fd::AsFd;
        loop {
            let ready = urxe_udp::wait(&[self.fd.as_fd()], Some(PATIENCE)).expect("wait");
            assert!(ready.is_ready(0), "no packet came");
            let mut frame = [0u8; 1 << 16];
            // SAFETY: the kernel writes at most `frame.len()` bytes to `frame`.
            let len = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    0,
                )
            };
            let frame = &frame[..usize::try_from(len).expect("recv")];
            const ETHERNET: usize = 14;
            let packet = &frame[ETHERNET..];
            if packet[0] == 0x45 && i32::from(packet[9]) == libc::IPPROTO_UDP {
                let word = |at| u16::from_be_bytes([packet[at], packet[at + 1]]);
                return (word(4), word(6) == 0x4000, usize::from(word(24)) - 8);
            }
        }
    }
}
