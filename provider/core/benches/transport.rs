//! What the transport itself costs: two shards, no sockets, packets handed over in
//! memory. `cargo bench -p urxe-core`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use support::{IOVA, Node, Settings};
use urxe_core::qp::attr::{Mtu, QpCap};
use urxe_core::work::{SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, RxPath, Time};

/// What the packets go through: those of a network have ICRCs.
#[derive(Clone, Copy)]
enum Wire {
    Network,
    Memory,
}

/// Moves everything from one node to the other; returns the number of packets.
fn pump(from: &mut Node, to: &mut Node, wire: Wire, now: Time) -> usize {
    let mut packets = 0;
    loop {
        let mut batch = std::mem::replace(
            &mut from.batch,
            urxe_core::transmit::TxBatch::new(0, urxe_core::transmit::RunLimits::SINGLE),
        );
        let more = from.with_env(now, |s, env| s.poll_transmit(env, &mut batch, AckMode::Now));
        packets += batch.packets();
        let path = match wire {
            Wire::Network => RxPath::new(from.addr, 4791, to.addr, 0),
            Wire::Memory => RxPath::in_memory(from.addr, to.addr, 0),
        };
        to.with_env(now, |s, env| {
            for run in batch.runs() {
                let bytes = &batch.bytes()[run.range.clone()];
                for (k, packet) in bytes.chunks(run.segment_size).enumerate() {
                    s.handle_packet(&path, k as u16, packet, env);
                }
            }
        });
        batch.clear();
        from.batch = batch;
        if !more {
            return packets;
        }
    }
}

fn writes(c: &mut Criterion, name: &str, wire: Wire, len: u32, mtu: Mtu, per_round: u32) {
    let s = Settings {
        mtu,
        cap: QpCap {
            max_send_wr: 256,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        memory: 4 << 20,
        window_bytes: 4 << 20,
        ..Settings::default()
    };
    let (mut a, mut b) = (Node::new(0, &s), Node::new(1, &s));
    a.connect(&s, 0, b.addr, b.qpn);
    b.connect(&s, 1, a.addr, a.qpn);
    for node in [&mut a, &mut b] {
        let qp = node.qp;
        node.with_env(Time(0), |shard, _| {
            shard.set_in_memory(qp, matches!(wire, Wire::Memory));
        });
    }
    let sges = [Sge {
        addr: IOVA,
        length: len,
        lkey: a.keys.lkey,
    }];
    let mut wr = SendWr::new(1, WrOpcode::RdmaWrite, WrData::Sges(&sges));
    wr.flags = SendFlags::NONE;
    (wr.remote_addr, wr.rkey) = (IOVA, b.keys.rkey);
    let mut group = c.benchmark_group("core");
    if len > 64 {
        group.throughput(Throughput::Bytes(u64::from(len) * u64::from(per_round)));
    } else {
        group.throughput(Throughput::Elements(u64::from(per_round)));
    }
    group.bench_function(name, |bench| {
        let mut now = 0;
        bench.iter(|| {
            now += 1000;
            let now = Time(now);
            let qp = a.qp;
            a.with_env(now, |shard, env| {
                for _ in 0..per_round {
                    shard.post_send(qp, &wr, env).expect("room");
                }
            });
            black_box(pump(&mut a, &mut b, wire, now));
            pump(&mut b, &mut a, wire, now);
        });
    });
    group.finish();
}

fn transport(c: &mut Criterion) {
    for (wire, suffix) in [(Wire::Network, ""), (Wire::Memory, ", no ICRC")] {
        let mut run = |what: &str, len, mtu, per_round| {
            let name = format!("write {what}, both sides{suffix}");
            writes(c, &name, wire, len, mtu, per_round);
        };
        run("8 B", 8, Mtu::Mtu1024, 128);
        run("1 MiB, MTU 1024", 1 << 20, Mtu::Mtu1024, 1);
        run("1 MiB, MTU 4096", 1 << 20, Mtu::Mtu4096, 1);
    }
}

criterion_group!(benches, transport);
criterion_main!(benches);
