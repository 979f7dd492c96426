//! What one sees of a run is what happened, and looking changes nothing.

use fabric_sim::fabric::{DropReason, Fate, Interference};
use fabric_sim::frame;
use fabric_sim::host::{FlowSpec, StreamOp, StreamSpec};
use fabric_sim::observe::{
    ClassSeries, Observation, Sampling, Series, captured, observed, outcomes,
};
use fabric_sim::qos::Trust;
use fabric_sim::switch::{Marking, Threshold};
use fabric_sim::topology::PortId;
use fabric_sim::{
    FabricConfig, FlowControl, HostId, Link, Mode, Qos, Rate, Sim, Span, SwitchConfig, Time,
    Topology,
};
use std::io::{self, Write};
use urxe_wire::{EtherType, Ethernet, Frame, LinkType};

/// One block of a capture file.
struct Block<'a> {
    kind: u32,
    body: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn blocks(file: &[u8]) -> Vec<Block<'_>> {
    let (mut rest, mut blocks) = (file, Vec::new());
    while !rest.is_empty() {
        let len = word(rest, 4) as usize;
        assert!(len.is_multiple_of(4) && word(rest, len - 4) as usize == len);
        blocks.push(Block {
            kind: word(rest, 0),
            body: &rest[8..len - 4],
        });
        rest = &rest[len..];
    }
    blocks
}

/// A packet of a capture.
#[derive(Debug)]
struct Seen<'a> {
    port: u32,
    ns: u64,
    bytes: &'a [u8],
    original_len: u32,
    flags: u32,
    comment: &'a str,
}

const OUTBOUND: u32 = 2;

impl<'a> Seen<'a> {
    fn of(body: &'a [u8]) -> Seen<'a> {
        let len = word(body, 12) as usize;
        let (mut options, mut flags, mut comment) = (&body[20 + len.next_multiple_of(4)..], 0, "");
        while let [a, b, c, d, rest @ ..] = options {
            let len = usize::from(u16::from_le_bytes([*c, *d]));
            let value = &rest[..len];
            match u16::from_le_bytes([*a, *b]) {
                1 => comment = std::str::from_utf8(value).expect("text"),
                2 => flags = word(value, 0),
                _ => {}
            }
            options = &rest[len.next_multiple_of(4)..];
        }
        Seen {
            port: word(body, 0),
            ns: u64::from(word(body, 4)) << 32 | u64::from(word(body, 8)),
            bytes: &body[20..20 + len],
            original_len: word(body, 16),
            flags,
            comment,
        }
    }
}

fn packets(file: &[u8]) -> Vec<Seen<'_>> {
    let packets = blocks(file).into_iter().filter(|b| b.kind == 6);
    packets.map(|b| Seen::of(b.body)).collect()
}

fn incast(config: FabricConfig, bytes: u32) -> Sim {
    let topology = Topology::single_switch(4, Link::new(Rate::gbps(100)));
    let mut sim = Sim::new(topology, config).expect("a switch");
    for host in 0..3 {
        let spec = StreamSpec::write(HostId(host), HostId(3), bytes);
        sim.add_stream(spec).expect("connects");
    }
    sim
}

fn switch(threshold: u64) -> SwitchConfig {
    let mut marking = [None; 8];
    marking[3] = Some(Marking {
        min: 5_000,
        max: 10_000,
        probability: 0.1,
    });
    SwitchConfig {
        threshold: Threshold::Static(threshold),
        lossy_threshold: Threshold::Static(threshold),
        marking,
        ..SwitchConfig::default()
    }
}

#[test]
fn a_capture_has_each_frame_at_both_ends_of_each_cable_and_changes_nothing() {
    let config = || FabricConfig {
        switch: switch(20_000),
        ..FabricConfig::default()
    };
    let mut plain = incast(config(), 100_000);
    plain.run();
    let mut sim = incast(config(), 100_000);
    let file = captured(&mut sim, Vec::new(), "three to one", Sim::run).expect("into memory");
    assert_eq!(sim.fabric().trace(), plain.fabric().trace());
    assert_eq!(sim.fabric().events(), plain.fabric().events());

    let blocks = blocks(&file);
    assert_eq!(blocks[0].kind, 0x0a0d_0d0a);
    let interfaces: Vec<_> = blocks.iter().filter(|b| b.kind == 1).collect();
    assert_eq!(interfaces.len(), 8);
    let name = |at: usize| String::from_utf8_lossy(&interfaces[at].body[12..16]).into_owned();
    // A cable's ends one after the other, as they were connected.
    let names: Vec<String> = (0..8).map(name).collect();
    assert!(names.iter().any(|n| n == "s0p3") && names.iter().any(|n| n.starts_with("h2")));

    let seen = packets(&file);
    assert!(seen.is_sorted_by_key(|p| p.ns), "in the order of time");
    let (out, inn): (Vec<_>, Vec<_>) = seen.iter().partition(|p| p.flags == OUTBOUND);
    assert_eq!(out.len(), inn.len(), "nothing was lost");
    let sent = sim.fabric().topology().ports().map(|p| {
        let stats = sim.fabric().port_stats(p);
        stats.sent_frames.iter().sum::<u64>() + stats.pauses_sent + stats.resumes_sent
    });
    assert_eq!(out.len() as u64, sent.sum::<u64>());
    let (mut roce, mut pauses) = (0, 0);
    for packet in &seen {
        assert_eq!(packet.bytes.len() as u32, packet.original_len);
        match Frame::parse(LinkType::Ethernet, packet.bytes).expect("a frame") {
            Frame::Roce(frame) => {
                assert!(frame.is_icrc_ok(), "{packet:?}");
                roce += 1;
            }
            Frame::Pause(_) => pauses += 1,
        }
    }
    assert!(roce > 600 && pauses > 4, "{roce} {pauses}");
}

#[test]
fn a_capture_says_why_a_frame_was_marked_held_up_or_dropped() {
    let config = FabricConfig {
        switch: switch(20_000),
        ..FabricConfig::default()
    };
    let mut sim = incast(config, 100_000);
    let file = captured(&mut sim, Vec::new(), "", Sim::run).expect("into memory");
    let seen = packets(&file);
    let with = |text: &str| seen.iter().filter(|p| p.comment.contains(text)).count() as u64;
    let ports = || sim.fabric().topology().ports();
    let count = |f: fn(&fabric_sim::fabric::PortStats) -> u64| -> u64 {
        ports().map(|p| f(&sim.fabric().port_stats(p))).sum()
    };
    assert_eq!(with("marked (CE)"), count(|s| s.marked));
    assert!(with("marked (CE)") > 50);
    assert_eq!(with("stop class 3: 2"), count(|s| s.pauses_sent));
    assert_eq!(with("go on with class 3: "), count(|s| s.resumes_sent));
    let waited = |p: &&Seen| {
        p.comment
            .starts_with("waited: class 3 of h0 (h0>s0) was paused for ")
    };
    let h0 = sim.fabric().port_of(HostId(0));
    let mut waited = seen.iter().filter(waited).peekable();
    assert!(waited.peek().is_some() && waited.all(|p| p.port == h0.0));
    assert_eq!(with("dropped"), 0);

    // The same without flow control: the switch drops, and says so of each frame.
    let qos = Qos {
        flow_control: FlowControl::None,
        ..Qos::default()
    };
    let config = FabricConfig {
        switch: switch(20_000),
        qos,
        ..FabricConfig::default()
    };
    let mut sim = incast(config, 100_000);
    let run = |sim: &mut Sim| {
        sim.run_until(Time::ZERO + Span::from_ms(1));
    };
    let file = captured(&mut sim, Vec::new(), "", run).expect("into memory");
    let seen = packets(&file);
    let why = "dropped (buffer): the buffer has no room for it; class 3 at s0p3 (s0>h3)";
    let dropped: Vec<_> = seen.iter().filter(|p| p.comment == why).collect();
    assert_eq!(dropped.len() as u64, sim.fabric().drops().total());
    assert!(!dropped.is_empty());
    // Said where it arrived, not in a record of its own.
    assert!(dropped.iter().all(|p| p.flags == 1), "{dropped:?}");
}

#[test]
fn a_bit_error_is_a_frame_with_a_wrong_check_sequence() {
    let link = Link {
        bit_error_rate: 1e-5,
        ..Link::new(Rate::gbps(100))
    };
    let mut sim = Sim::new(Topology::back_to_back(link), FabricConfig::default()).expect("two");
    sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).size(100 * 1024));
    let file = captured(&mut sim, Vec::new(), "", Sim::run).expect("into memory");
    let seen = packets(&file);
    let bad: Vec<_> = seen.iter().filter(|p| p.flags == 1 | 1 << 24).collect();
    assert_eq!(bad.len() as u64, sim.fabric().drops().total());
    assert!(
        !bad.is_empty()
            && bad
                .iter()
                .all(|p| p.comment.starts_with("dropped (bit-error)"))
    );
    assert_eq!(seen.len(), 200);
    // A plain flow has no content: headers, and how long it is.
    assert!(
        seen.iter()
            .all(|p| p.bytes.len() == 50 && p.original_len == 1082)
    );
}

/// A disk that is full after so many bytes.
#[derive(Debug)]
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.checked_sub(bytes.len()) {
            Some(left) => self.0 = left,
            None => return Err(io::ErrorKind::StorageFull.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_that_cannot_be_written_says_so_and_the_run_goes_on() {
    for room in [0, 10_000] {
        let mut sim = incast(FabricConfig::default(), 100_000);
        let error = captured(&mut sim, Full(room), "", Sim::run).expect_err("there is no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(sim.streams().iter().all(|s| s.is_complete()), room > 0);
    }
}

#[test]
fn samples_add_up_to_what_was_counted_and_change_nothing() {
    let config = || FabricConfig {
        switch: switch(20_000),
        mode: Mode::Lite,
        ..FabricConfig::default()
    };
    let mut plain = incast(config(), 100_000);
    plain.run_until(Time::ZERO + Span::from_ms(500));
    for sampling in [
        Sampling::Every(Span::from_ns(1_700)),
        Sampling::AtMost(64),
        Sampling::AtMost(7),
    ] {
        let mut sim = incast(config(), 100_000);
        let seen = observed(&mut sim, Time::ZERO + Span::from_ms(500), sampling);
        assert_eq!(sim.fabric().trace(), plain.fabric().trace());
        assert_eq!(sim.fabric().events(), plain.fabric().events());
        assert_eq!(sim.now(), plain.now());
        let Observation {
            series,
            flows,
            ports,
            ..
        } = &seen;
        match sampling {
            Sampling::Every(span) => assert_eq!(series.interval, span),
            Sampling::AtMost(most) => assert!(series.len <= most && series.len >= most / 4),
        }
        // What happened lasts some 26 us; that nothing happens afterwards takes no samples.
        assert!(
            series.start_of(series.len) < Time::ZERO + Span::from_us(60),
            "{:?}",
            series.interval
        );
        for (stats, classes) in ports.iter().zip(&series.ports) {
            for class in classes {
                let priority = usize::from(class.priority);
                let frames = stats.sent_frames[priority];
                let sent = stats.sent_bytes[priority] + 20 * frames;
                assert_eq!(class.sent.iter().sum::<u64>(), sent);
                let longest = class.queue.iter().max().copied();
                assert_eq!(longest, Some(stats.queue_max[priority]));
                let paused = class.paused.iter().sum::<u64>();
                assert_eq!(paused, stats.paused[priority].ps());
                assert_eq!(class.sent.len(), series.len);
            }
        }
        let used = |of: fn(&ClassSeries) -> &Vec<u64>| {
            let classes = series.ports.iter().flatten();
            classes.flat_map(|c| of(c).iter().copied()).max()
        };
        assert!(used(|c| &c.buffered) > Some(20_000), "beyond the threshold");
        assert!(used(|c| &c.headroom) > Some(0));
        assert!(used(|c| &c.paused) > Some(0));
        for (flow, arrived) in flows.iter().zip(&series.flows) {
            assert_eq!(arrived.iter().sum::<u64>(), 100_000);
            assert_eq!(flow.bytes, 100_000);
            let slowdown = flow.slowdown().expect("complete");
            assert!((2.5..3.2).contains(&slowdown), "{slowdown}");
        }
    }
}

#[test]
fn a_flow_alone_takes_as_long_as_a_flow_alone() {
    let link = |gbps| Link::new(Rate::gbps(gbps)).metres(30);
    for op in [StreamOp::Write, StreamOp::Read] {
        let topology = Topology::leaf_spine(2, 2, 2, link(25), link(100));
        let mut sim = Sim::new(topology, FabricConfig::default()).expect("a network");
        let spec = StreamSpec {
            op,
            ..StreamSpec::write(HostId(0), HostId(3), 1_000_001)
        };
        sim.add_stream(spec).expect("connects");
        sim.run();
        let [flow] = &outcomes(&sim)[..] else {
            panic!("one flow")
        };
        let slowdown = flow.slowdown().expect("complete");
        assert!((0.999..1.02).contains(&slowdown), "{op:?} {slowdown}");
    }
    let topology = Topology::dumbbell(1, 1, link(25), link(10));
    let mut sim = Sim::new(topology, FabricConfig::default()).expect("a network");
    sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).size(100_000));
    sim.add_flow(FlowSpec::new(HostId(1), HostId(0)));
    sim.run_until(Time::ZERO + Span::from_ms(1));
    let flows = outcomes(&sim);
    let slowdown = flows[0].slowdown().expect("complete");
    assert!((0.999..1.01).contains(&slowdown), "{slowdown}");
    assert_eq!(
        (flows[1].slowdown(), flows[1].ideal, flows[1].size),
        (None, None, None)
    );
}

#[test]
fn a_pause_that_lasts_is_seen_as_long_as_it_lasts() {
    // Nothing happens for a long time while everything waits.
    let mut sim = fabric_sim::experiments::cycle_of_buffers(true, None);
    let seen = observed(
        &mut sim,
        Time::ZERO + Span::from_ms(60),
        Sampling::AtMost(100),
    );
    assert!(sim.fabric().find_deadlock().is_some());
    let Series {
        interval,
        len,
        ports,
        ..
    } = &seen.series;
    assert!((50..=100).contains(len), "{len}");
    let end = seen.series.start_of(*len);
    assert!(end >= Time::ZERO + Span::from_ms(60), "to the end: {end}");
    // A port that waits in the circle is paused in every sample of the second half, and holds the same.
    let stuck = ports.iter().flatten().filter(|class| {
        let late = class.paused.iter().zip(&class.queue).skip(len / 2);
        class.queue[len / 2] > 0
            && late
                .clone()
                .take(len / 2 - 1)
                .all(|(&p, _)| p == interval.ps())
    });
    assert!(stuck.count() >= 4);
}

#[test]
fn tagged_frames_plain_flows_and_credits_can_be_told_apart() {
    let qos = Qos {
        trust: Trust::Pcp,
        flow_control: FlowControl::Credits {
            buffer: 64 << 10,
            update: 8 << 10,
        },
        ..Qos::default()
    };
    let config = FabricConfig {
        qos,
        ..FabricConfig::default()
    };
    let mut sim = incast(config, 20_000);
    sim.add_flow(FlowSpec::new(HostId(1), HostId(0)).size(50_000));
    let file = captured(&mut sim, Vec::new(), "", Sim::run).expect("into memory");
    let (mut roce, mut flow, mut credits) = (0, 0, 0);
    for packet in packets(&file) {
        let (ethernet, rest) = Ethernet::parse(packet.bytes).expect("a header");
        if ethernet.ethertype == EtherType(0x88b5) {
            credits += 1;
            continue;
        }
        assert_eq!(ethernet.tags[0].map(|tag| tag.pcp), Some(3), "{packet:?}");
        if let Ok(Frame::Roce(frame)) = Frame::parse(LinkType::Ethernet, packet.bytes) {
            assert!(frame.is_icrc_ok());
            roce += 1;
            continue;
        }
        // What the header says is what the frame had; of the rest there is nothing.
        let header: [u8; 20] = rest[..20].try_into().expect("an IP header");
        let total_len = u16::from_be_bytes([header[2], header[3]]);
        assert_eq!(u32::from(total_len), packet.original_len - 18);
        let sum = header.as_chunks::<2>().0.iter();
        let sum: u32 = sum.map(|&word| u32::from(u16::from_be_bytes(word))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum");
        assert_eq!(rest[22..24], [0, 9], "to the port that discards");
        assert!(packet.bytes.len() < packet.original_len as usize);
        flow += 1;
    }
    assert_eq!(flow, 4 * 50_000_u32.div_ceil(1024));
    assert!(roce > 200 && credits > 10, "{roce} {credits}");
}

#[test]
fn a_capture_has_what_faults_did() {
    let mut sim = incast(FabricConfig::default(), 200_000);
    let cable = sim.fabric().port_of(HostId(0));
    sim.fabric_mut()
        .set_interference(Box::new(Mischief(cable, 0)));
    let file = captured(&mut sim, Vec::new(), "", Sim::run).expect("into memory");
    assert!(sim.streams().iter().all(|stream| stream.is_complete()));
    let seen = packets(&file);
    let with = |text: &str, flags: u32| {
        let of = |p: &&Seen| p.comment.starts_with(text) && p.flags == flags;
        seen.iter().filter(of).count() as u64
    };
    let drops = sim.fabric().drops();
    assert_eq!(with("dropped (fault)", 0), drops.of(DropReason::Fault));
    assert_eq!(
        with("dropped (bit-error)", 1 | 1 << 24),
        drops.of(DropReason::BitError)
    );
    assert!(drops.of(DropReason::Fault) > 0 && drops.of(DropReason::BitError) > 0);
    // Each that was sent by h0 came to the switch, but for the dropped, and some came twice.
    let peer = cable.peer();
    let count = |port: u32, flags: u32| {
        let of = |p: &&Seen| p.port == port && p.flags == flags;
        seen.iter().filter(of).count() as u64
    };
    let (sent, came) = (count(cable.0, OUTBOUND), count(peer.0, 1));
    assert_eq!(came, sent - drops.total() + sent / 50);
}

/// Loses, damages and doubles some frames that leave a port.
#[derive(Debug)]
struct Mischief(PortId, u64);

impl Interference for Mischief {
    fn on_wire(&mut self, _: Time, port: PortId, _: &mut frame::Frame, _: &mut [u8]) -> Fate {
        if port != self.0 {
            return Fate::Pass;
        }
        self.1 += 1;
        match self.1 % 50 {
            10 => Fate::Lose,
            30 => Fate::Corrupt,
            0 => Fate::Duplicate(Span::from_ns(700)),
            _ => Fate::Pass,
        }
    }
}
