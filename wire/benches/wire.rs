//! What the wire layer costs a packet: parse, build, ICRC. See docs/WIRE.md.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use urxe_wire::{
    Bth, IcrcSeed, Opcode, Packet, PacketWriter, PathHeader, Psn, Qpn, Reth, Rkey, packet_len,
    reident,
};

fn seed() -> IcrcSeed {
    IcrcSeed::new(&PathHeader::V4 {
        src: [10, 0, 0, 1],
        dst: [10, 0, 0, 2],
        sport: 0xc000,
        dport: urxe_wire::ROCE_V2_PORT,
    })
}

fn build(buf: &mut [u8], opcode: Opcode, payload: usize, psn: u32, seed: &IcrcSeed) -> usize {
    let info = opcode.info().expect("in the table");
    let len = packet_len(info, payload);
    let mut writer = PacketWriter::new(
        &mut buf[..len],
        &Bth::new(opcode, Qpn::new(0x11), Psn::new(psn)),
    );
    if opcode == Opcode::RC_WRITE_ONLY {
        writer.reth(&Reth {
            va: 0x7f00_1234_5678,
            rkey: Rkey(77),
            dma_len: payload as u32,
        });
    }
    // The payload is left as it is in the buffer: filling it is the memory's cost.
    writer.payload_mut(payload);
    writer.finish(seed, 0)
}

fn parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    for payload in [8, 4096] {
        let mut buf = vec![7; 5000];
        let len = build(&mut buf, Opcode::RC_WRITE_ONLY, payload, 5, &seed());
        group.bench_function(format!("bth/{payload}"), |b| {
            b.iter(|| {
                let packet = Packet::parse(black_box(&buf[..len])).expect("valid");
                let bth = packet.bth();
                (bth.psn, bth.dest_qp, bth.ack_req, packet.payload().len())
            });
        });
        group.bench_function(format!("bth_and_reth/{payload}"), |b| {
            b.iter(|| {
                let packet = Packet::parse(black_box(&buf[..len])).expect("valid");
                (packet.bth().psn, packet.reth(), packet.payload().len())
            });
        });
    }
    group.finish();
}

fn build_packet(c: &mut Criterion) {
    let mut group = c.benchmark_group("build");
    let seed = seed();
    let mut buf = vec![7; 5000];
    for (name, opcode, payload) in [
        ("send/8", Opcode::RC_SEND_ONLY, 8),
        ("write/8", Opcode::RC_WRITE_ONLY, 8),
        ("send/1024", Opcode::RC_SEND_ONLY, 1024),
        ("send/4096", Opcode::RC_SEND_ONLY, 4096),
    ] {
        let mut psn = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                psn += 1;
                build(black_box(&mut buf), opcode, payload, psn, &seed)
            });
        });
    }
    group.finish();
}

fn icrc(c: &mut Criterion) {
    let mut group = c.benchmark_group("icrc");
    let seed = seed();
    // Bytes after the BTH; the comparison is a plain CRC over these alone.
    for len in [24, 64, 128, 256, 1024, 4096_u32] {
        let buf: Vec<u8> = (0..12 + len).map(|i| (i * 7 + 3) as u8).collect();
        group.throughput(Throughput::Bytes(u64::from(len)));
        group.bench_function(format!("seed/{len}"), |b| {
            b.iter(|| seed.compute(black_box(0), black_box(&buf)));
        });
        group.bench_function(format!("crc32fast/{len}"), |b| {
            b.iter(|| crc32fast::hash(black_box(&buf[12..])));
        });
        group.bench_function(format!("crc-fast/{len}"), |b| {
            b.iter(|| {
                crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, black_box(&buf[12..]))
            });
        });
    }
    group.finish();
}

fn verify(c: &mut Criterion) {
    let mut group = c.benchmark_group("verify");
    let seed = seed();
    for payload in [8, 4096] {
        let mut buf = vec![7; 5000];
        let len = build(&mut buf, Opcode::RC_WRITE_ONLY, payload, 5, &seed);
        let packet = &mut buf[..len];
        group.bench_function(format!("ident_0/{payload}"), |b| {
            b.iter(|| seed.verify(0, black_box(&*packet)));
        });
        reident(packet, 0, 0x5a17);
        group.bench_function(format!("ident_hidden/{payload}"), |b| {
            b.iter(|| seed.verify(0, black_box(&*packet)));
        });
    }
    let mut packet = vec![7; 40];
    group.bench_function("reident/40", |b| {
        b.iter(|| reident(black_box(&mut packet), 0, 1))
    });
    group.finish();
}

criterion_group!(benches, parse, build_packet, icrc, verify);
criterion_main!(benches);
