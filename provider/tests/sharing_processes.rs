//! Several processes on one address.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::common::{self, End, address, connect, exchange, wait_until};
use urxe::{ConnectOptions, Context, Endpoint, SendWr, Wc};

/// Says to this test binary, started again, that it is a peer at this address.
const PEER: &str = "URXE_TEST_PEER_AT";

fn end_at(addr: IpAddr) -> End {
    End::on(Context::open(addr).expect("shared"))
}

/// A peer in a process of its own.
struct Peer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(addr: IpAddr) -> Peer {
        let program = std::env::current_exe().expect("this test binary");
        let mut process = Command::new(program)
            .args([
                "sharing_processes::peer_process",
                "--exact",
                "--nocapture",
                "--quiet",
            ])
            .env(PEER, addr.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Peer {
            process,
            input,
            output,
        }
    }

    /// The next line that is meant for us: the test harness prints, too.
    fn line(&mut self, key: &str) -> String {
        loop {
            let mut line = String::new();
            let len = self.output.read_line(&mut line).expect("a pipe");
            assert!(len > 0, "the peer ended before it said {key}");
            if let Some((_, rest)) = line.split_once(key) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Connects it with an end of ours.
    fn connect(&mut self, end: &End) {
        let endpoint: Endpoint = self.line("peer: endpoint ").parse().expect("an endpoint");
        let options = ConnectOptions::default();
        end.qp.connect(&endpoint, &options).expect("connects");
        writeln!(self.input, "{}", end.qp.endpoint()).expect("it listens");
        self.line("peer: connected");
    }

    fn kill(mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it ends");
    }
}

/// Not a test by itself: what a peer does. It echoes what it is sent.
#[test]
fn peer_process() {
    let Ok(addr) = std::env::var(PEER) else {
        println!("skipped: this is what other tests start");
        return;
    };
    let end = end_at(addr.parse().expect("an address"));
    println!("peer: endpoint {}", end.qp.endpoint());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a pipe");
    let endpoint: Endpoint = line.trim().parse().expect("an endpoint");
    let buffer = end.memory(64);
    let post = || end.recv(0, &buffer);
    end.qp
        .connect(&endpoint, &ConnectOptions::default())
        .expect("connects");
    (0..16).for_each(|_| post());
    println!("peer: connected");
    // Until it is killed, or the listener is gone.
    loop {
        let mut wcs = [Wc::default(); 8];
        end.cq.req_notify(false).expect("a channel");
        let count = end.cq.poll(&mut wcs).expect("polls");
        if count == 0 {
            end.channel.wait_timeout(common::PATIENCE).expect("waits");
        }
        for wc in &wcs[..count] {
            if !wc.is_success() {
                return;
            }
            if wc.opcode == urxe::WcOpcode::Recv {
                let sges = [buffer.sge(..8)];
                let answer = SendWr::send(1, &sges).signaled();
                end.qp.post_send(&answer).expect("room");
                post();
            }
        }
    }
}

/// Sends a number and waits for the echo.
fn ping(end: &End, number: u64) {
    let (out, back) = (end.memory(8), end.memory(64));
    out.write(0, &number.to_le_bytes());
    end.recv(1, &back);
    let sges = [out.sge(..)];
    let wr = SendWr::send(2, &sges).signaled();
    end.qp.post_send(&wr).expect("room");
    let mut got = [end.succeed().wr_id, end.succeed().wr_id];
    got.sort_unstable();
    assert_eq!(got, [1, 2]);
    assert_eq!(common::bytes(&back, 8), number.to_le_bytes());
}

#[test]
fn a_killed_process_takes_nothing_with_it() {
    let shared = address();
    // The victims are first in the kernel's list: all behind them move.
    let mut victims: Vec<Peer> = (0..3).map(|_| Peer::start(shared)).collect();
    let to_victims: Vec<End> = (0..3).map(|_| End::open()).collect();
    for (peer, end) in victims.iter_mut().zip(&to_victims) {
        peer.connect(end);
        ping(end, 1);
    }
    let (near, far) = (end_at(shared), End::open());
    connect(&near.qp, &far.qp, &ConnectOptions::default());
    let mut survivor = Peer::start(shared);
    let to_survivor = End::open();
    survivor.connect(&to_survivor);
    for (round, victim) in victims.into_iter().enumerate() {
        victim.kill();
        for number in 0..20 {
            exchange(&near, &far, number + 100 * round as u64);
            ping(&to_survivor, number);
        }
    }
    // A process that joins now finds room and does not disturb.
    let (late, to_late) = (end_at(shared), End::open());
    connect(&late.qp, &to_late.qp, &ConnectOptions::default());
    exchange(&late, &to_late, 5);
    exchange(&near, &far, 6);
    ping(&to_survivor, 7);
    // The peers of the ended process are told.
    let end = &to_victims[0];
    end.qp
        .post_send(&SendWr::send_inline(3, b"hello?").signaled())
        .expect("room");
    let wc = end.complete();
    assert_eq!(wc.status, urxe::WcStatus::RetryExcErr, "{wc}");
    wait_until("the QP fails", || {
        end.qp.state().expect("queries") == urxe::QpState::Err
    });
    survivor.kill();
}

/// DREQs for the owner of a chunk, which come to another process: what a stranger can send without knowing anything.
fn flood_for(chunk: u32, from: IpAddr, to: IpAddr) -> (urxe_udp::UdpSocket, Vec<u8>) {
    use urxe_wire::cm::{CmMessage, Dreq};
    use urxe_wire::{Bth, Deth, IcrcSeed, MAD_LEN, Opcode, PacketWriter, PathHeader, Qkey};

    let (IpAddr::V4(src), IpAddr::V4(dst)) = (from, to) else {
        panic!("tests are on 127.0.0.0/8")
    };
    let config = urxe_udp::UdpConfig::default();
    let socket = urxe_udp::UdpSocket::bind((from, 0).into(), &config).expect("free");
    let seed = IcrcSeed::new(&PathHeader::V4 {
        src: src.octets(),
        dst: dst.octets(),
        sport: socket.local_addr().port(),
        dport: 4791,
    });
    let message = CmMessage::Dreq(Dreq {
        local_comm_id: 1,
        remote_comm_id: chunk << 20,
        remote_qpn: urxe::Qpn::new(2),
        reserved11: 0,
        private_data: [0; 220],
    });
    let gsi = urxe::Qpn::new(1);
    let info = Opcode::UD_SEND_ONLY.info().expect("an opcode of the table");
    let mut bytes = vec![0; urxe_wire::packet_len(info, MAD_LEN)];
    let bth = Bth::new(Opcode::UD_SEND_ONLY, gsi, urxe::Psn::new(0));
    let mut writer = PacketWriter::new(&mut bytes, &bth);
    writer.deth(&Deth {
        qkey: Qkey::GSI,
        reserved: 0,
        src_qp: gsi,
    });
    let mad = message.emit_mad(1);
    writer.payload_mut(MAD_LEN).copy_from_slice(&mad);
    writer.finish(&seed, 0);
    (socket, bytes)
}

#[test]
fn stopped_neighbours_stop_nobody_whatever_is_sent_to_them() {
    use rustix::process::{Pid, Signal, kill_process};
    use urxe_udp::{Dest, SendBatch, Transmit};

    let shared = address();
    let (near, far) = (end_at(shared), End::open());
    connect(&near.qp, &far.qp, &ConnectOptions::default());
    let from = address();
    let floods: Vec<_> = (0..24)
        .map(|_| {
            let mut peer = Peer::start(shared);
            let endpoint: Endpoint = peer.line("peer: endpoint ").parse().expect("an endpoint");
            let pid = Pid::from_child(&peer.process);
            kill_process(pid, Signal::STOP).expect("ours");
            (peer, flood_for(endpoint.qpn.get() >> 12, from, shared))
        })
        .collect();
    // All that comes, comes to the one that is at work; no other process corrects that.
    common::steer_all_to(shared, 0);
    let mut rounds = 0;
    let passed_on = || near.counter("handed_over") + near.counter("hand_over_lost");
    while passed_on() < 10_000 {
        for (_, (socket, bytes)) in &floods {
            let dest = Dest::new((shared, 4791).into());
            let _ = socket.send(SendBatch {
                bytes,
                transmits: &[Transmit::single(0..bytes.len(), dest)],
            });
        }
        rounds += 1;
        // Fails if a retry counter is used up.
        exchange(&near, &far, rounds);
    }
    println!(
        "{rounds} exchanges, {} messages for stopped processes",
        passed_on()
    );
    assert!(near.counter("hand_over_lost") > 0, "their inboxes are full");
    assert_eq!(near.qp.state().expect("queries"), urxe::QpState::Rts);
    for (peer, _) in floods {
        peer.kill();
    }
}

#[test]
fn a_child_of_a_fork_does_not_hold_the_address() {
    let shared = address();
    let first = Context::open(shared).expect("shared");
    // `sh` runs in a child that execs: its copies are closed then. What a child without
    // exec keeps is tested beside the handler (`mem/fork.rs`).
    let mut child = Command::new("sleep").arg("30").spawn().expect("starts");
    drop(first);
    // Other tests start processes, too: until those exec, they have our sockets.
    wait_until("the address is free", || {
        Context::builder(shared).share(false).open().is_ok()
    });
    child.kill().expect("ours");
    child.wait().expect("ends");
}
