//! How many slots a receive batch should have: one thread sends, one receives.
//!
//! `cargo run --release -p urxe-udp --example recv_choice [rounds]`
//!
//! For each kind of traffic and number of slots it prints the median over the rounds of
//! what the receiver took in. With one slot every datagram costs a `recvmsg`; with more,
//! a receiver that finds datagrams repeatedly asks for several by `recvmmsg`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use urxe_udp::{Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket};

/// Packets of `packet` bytes, `segments` to a run, `runs` to a batch.
struct Traffic {
    name: &'static str,
    packet: usize,
    segments: usize,
    runs: usize,
}

const TRAFFIC: [Traffic; 3] = [
    Traffic {
        name: "40 B, runs of 64",
        packet: 40,
        segments: 64,
        runs: 4,
    },
    Traffic {
        name: "1056 B, runs of 62",
        packet: 1056,
        segments: 62,
        runs: 2,
    },
    Traffic {
        name: "4128 B, runs of 15",
        packet: 4128,
        segments: 15,
        runs: 2,
    },
];
const SLOTS: [usize; 6] = [1, 2, 4, 8, 16, 32];

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .map_or(5, |n| n.parse().expect("a number of rounds"));
    println!(
        "{:20} {}",
        "Mpkt/s, slots:",
        SLOTS.map(|n| format!("{n:>8}")).concat()
    );
    for traffic in &TRAFFIC {
        // Alternate over the settings, so that a slow moment of the machine hits all.
        let mut samples = SLOTS.map(|_| Vec::new());
        for _ in 0..rounds {
            for (slots, samples) in SLOTS.into_iter().zip(&mut samples) {
                samples.push(packets_per_second(traffic, slots));
            }
        }
        let line = samples
            .map(|s| format!("{:>8.2}", median(s) / 1e6))
            .concat();
        println!("{:20} {line}", traffic.name);
    }
    for packet in [40, 1056] {
        let mut samples = SLOTS.map(|_| Vec::new());
        for _ in 0..rounds {
            for (slots, samples) in SLOTS.into_iter().zip(&mut samples) {
                samples.push(drain_ns(packet, slots));
            }
        }
        let line = samples.map(|s| format!("{:>8.1}", median(s))).concat();
        println!("{:20} {line}", format!("{packet} B, drain, ns"));
    }
    println!("{:20} {}", "half RTT, us:", {
        let mut samples = SLOTS.map(|_| Vec::new());
        for _ in 0..rounds {
            for (slots, samples) in SLOTS.into_iter().zip(&mut samples) {
                samples.push(half_round_trip_us(slots));
            }
        }
        samples.map(|s| format!("{:>8.2}", median(s))).concat()
    });
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn bound() -> UdpSocket {
    let addr: SocketAddr = "127.0.0.1:0".parse().expect("literal");
    UdpSocket::bind(addr, &UdpConfig::default()).expect("bind")
}

fn packets_per_second(traffic: &Traffic, slots: usize) -> f64 {
    let (tx, rx) = (bound(), bound());
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let run_len = traffic.packet * traffic.segments;
    let bytes = vec![1u8; run_len * traffic.runs];
    let dest = Dest::new(rx.local_addr());
    let transmits: Vec<Transmit> = (0..traffic.runs)
        .map(|k| Transmit::run(k * run_len..(k + 1) * run_len, traffic.packet, dest))
        .collect();
    let per_batch = (traffic.segments * traffic.runs) as u64;
    // As much in flight as the receive buffer holds for certain.
    let window = ((512 << 10) / traffic.packet as u64).clamp(2 * per_batch, 4096);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = RecvBatch::new(slots);
            while !stop.load(Relaxed) {
                rx.recv(&mut batch).expect("recv");
                let mut packets = 0;
                for datagram in batch.iter() {
                    for (_, packet) in datagram.segments() {
                        packets += u64::from(std::hint::black_box(packet)[0]);
                    }
                }
                received.fetch_add(packets, Relaxed);
            }
        });
        scope.spawn(|| {
            let mut sent = 0;
            while !stop.load(Relaxed) {
                if sent + per_batch - received.load(Relaxed) > window {
                    std::hint::spin_loop();
                    continue;
                }
                let outcome = tx.send(SendBatch {
                    bytes: &bytes,
                    transmits: &transmits,
                });
                assert!(matches!(outcome, SendOutcome::All { .. }), "{outcome:?}");
                sent += per_batch;
            }
        });
        thread::sleep(Duration::from_millis(50));
        let (from, start) = (received.load(Relaxed), Instant::now());
        thread::sleep(Duration::from_millis(250));
        let rate = (received.load(Relaxed) - from) as f64 / start.elapsed().as_secs_f64();
        stop.store(true, Relaxed);
        rate
    })
}

/// What it takes to receive one of many single packets that are there already.
fn drain_ns(packet: usize, slots: usize) -> f64 {
    const QUEUED: usize = 512;
    let config = UdpConfig {
        gso: false,
        gro: false,
        ..UdpConfig::default()
    };
    let addr: SocketAddr = "127.0.0.1:0".parse().expect("literal");
    let (tx, rx) = (bound(), UdpSocket::bind(addr, &config).expect("bind"));
    let transmits = [Transmit::single(0..packet, Dest::new(rx.local_addr())); 64];
    let bytes = vec![1; packet];
    let mut batch = RecvBatch::new(slots);
    let mut times = Vec::new();
    for _ in 0..50 {
        for _ in 0..QUEUED / transmits.len() {
            let outcome = tx.send(SendBatch {
                bytes: &bytes,
                transmits: &transmits,
            });
            assert!(matches!(outcome, SendOutcome::All { .. }), "{outcome:?}");
        }
        let (start, mut received) = (Instant::now(), 0);
        while received < QUEUED {
            received += rx.recv(&mut batch).expect("recv");
        }
        times.push(start.elapsed().as_nanos() as f64 / QUEUED as f64);
    }
    median(times)
}

fn half_round_trip_us(slots: usize) -> f64 {
    const WARM: usize = 1000;
    const ROUNDS: usize = 10_000;
    let (ping, pong) = (bound(), bound());
    let (to_ping, to_pong) = (Dest::new(ping.local_addr()), Dest::new(pong.local_addr()));
    let exchange = |socket: &UdpSocket, batch: &mut RecvBatch| {
        while socket.recv(batch).expect("recv") == 0 {}
    };
    let send = |socket: &UdpSocket, dest| {
        let transmits = [Transmit::single(0..40, dest)];
        let outcome = socket.send(SendBatch {
            bytes: &[1; 40],
            transmits: &transmits,
        });
        assert!(matches!(outcome, SendOutcome::All { .. }), "{outcome:?}");
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = RecvBatch::new(slots);
            for _ in 0..WARM + ROUNDS {
                exchange(&pong, &mut batch);
                send(&pong, to_ping);
            }
        });
        let mut batch = RecvBatch::new(slots);
        let mut times = Vec::with_capacity(ROUNDS);
        for round in 0..WARM + ROUNDS {
            let start = Instant::now();
            send(&ping, to_pong);
            exchange(&ping, &mut batch);
            if round >= WARM {
                times.push(start.elapsed().as_nanos() as f64 / 2e3);
            }
        }
        median(times)
    })
}
