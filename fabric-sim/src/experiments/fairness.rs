//! Which flow gets how much.

use urxe_core::congestion::{CongestionControl, DcqcnParams, Rate as CoreRate};

use crate::engine::{Rate, Span, Time};
use crate::experiments::{Bound, Findings, PAYLOAD_SHARE, network};
use crate::fabric::Mode;
use crate::host::{FlowId, FlowSpec, StreamSpec, TransportConfig};
use crate::qos::PauseTimes;
use crate::switch::Marking;
use crate::topology::HostId;
use crate::{FabricConfig, FlowControl, Link, Qos, Sim, SwitchConfig, Topology};

const SHARE_TIME_MS: u64 = 100;

/// Payload of a flow in Gb/s, since a time.
fn gbps(sim: &Sim, flow: FlowId, before: u64, span: Span) -> f64 {
    (sim.flow(flow).delivered_bytes - before) as f64 * 8e-9 / span.as_secs_f64()
}

/// A, B to C.
pub(super) fn share(findings: &mut Findings) {
    let pause = PauseTimes::default();
    let schemes = [
        ("pause", FlowControl::Pfc(pause)),
        (
            "credits",
            FlowControl::Credits {
                buffer: 64 << 10,
                update: 8 << 10,
            },
        ),
        ("reservation", FlowControl::None),
        ("dropping", FlowControl::None),
    ];
    let half = 0.5 * PAYLOAD_SHARE;
    for (name, flow_control) in schemes {
        let Shared {
            rates,
            drops,
            wrong,
        } = two_to_one(flow_control, name == "reservation");
        if name == "dropping" {
            // Which flow loses is a matter of phases; together they fill the link.
            let sum = rates[0] + rates[1];
            findings.within(0.01, "dropping: both", "Gb/s", 2.0 * half, sum);
            findings.at_least("dropping: lost frames", 1.0, drops);
            continue;
        }
        for (host, rate) in ["A", "B"].into_iter().zip(rates) {
            findings.within(0.02, format!("{name}: {host}"), "Gb/s", half, rate);
        }
        findings.exactly(format!("{name}: lost frames"), 0.0, drops);
        if name == "reservation" {
            findings.exactly("reservation: wrong answers", 0.0, wrong);
        }
    }
}

/// What came of sharing.
struct Shared {
    /// The rates of A and of B, in Gb/s.
    rates: [f64; 2],
    drops: f64,
    /// Reservations that were refused although there was room, or granted although there was none.
    wrong: f64,
}

fn two_to_one(flow_control: FlowControl, reserves: bool) -> Shared {
    let config = FabricConfig {
        qos: Qos {
            flow_control,
            ..Qos::default()
        },
        switch: buffer(1 << 20),
        ..FabricConfig::default()
    };
    let topology = Topology::single_switch(3, Link::new(Rate::gbps(1)));
    let mut sim = Sim::new(topology, config).expect("a switch and three hosts");
    let mut wrong = 0;
    let flows = [0, 1].map(|host| {
        let spec = FlowSpec::new(HostId(host), HostId(2));
        if !reserves {
            return sim.add_flow(spec);
        }
        let half = Rate::mbps(500);
        wrong += u32::from(sim.fabric_mut().reserve(&spec, half).is_err());
        // One more than the link has.
        wrong += u32::from(sim.fabric_mut().reserve(&spec, Rate::mbps(501)).is_ok());
        sim.add_flow(spec.paced(half))
    });
    let span = Span::from_ms(SHARE_TIME_MS);
    sim.run_until(Time::ZERO + span);
    Shared {
        rates: flows.map(|flow| gbps(&sim, flow, 0, span)),
        drops: sim.fabric().drops().total() as f64,
        wrong: f64::from(wrong),
    }
}

/// A switch with so much buffer.
fn buffer(buffer: u64) -> SwitchConfig {
    SwitchConfig {
        buffer,
        ..SwitchConfig::default()
    }
}

/// Rates of the second half of a run.
fn settled(sim: &mut Sim, flows: &[FlowId]) -> Vec<f64> {
    let span = Span::from_ms(10);
    sim.run_for(span);
    let before: Vec<u64> = flows.iter().map(|&f| sim.flow(f).delivered_bytes).collect();
    sim.run_for(span);
    let flows = flows.iter().zip(before);
    flows.map(|(&f, b)| gbps(sim, f, b, span)).collect()
}

/// H1, H2, H3 come to the receiver's switch through uplinks, H4 is on it.
pub(super) fn unfairness(findings: &mut Findings) {
    let cases = [
        (
            "one uplink",
            "h0 t1\nh1 t1\nh2 t1\nt1 t0\n",
            [1.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0, 0.5],
        ),
        (
            "two uplinks",
            "h0 t1\nh1 t1\nh2 t2\nt1 t0\nt2 t0\n",
            [1.0 / 6.0, 1.0 / 6.0, 1.0 / 3.0, 1.0 / 3.0],
        ),
    ];
    for (name, cables, shares) in cases {
        let text = format!("{cables}h3 t0\nh4 t0\n").replace('\n', " 40Gbps 2m\n");
        let topology: Topology = text.parse().expect("an edge list");
        let mut sim = network(topology, buffer(2 << 20));
        let flows: Vec<FlowId> = (0..4)
            .map(|h| sim.add_flow(FlowSpec::new(HostId(h), HostId(4))))
            .collect();
        let rates = settled(&mut sim, &flows);
        for (host, (rate, share)) in (1..).zip(rates.into_iter().zip(shares)) {
            let expected = 40.0 * share * PAYLOAD_SHARE;
            findings.within(0.05, format!("{name}: H{host}"), "Gb/s", expected, rate);
        }
        let drops = sim.fabric().drops().total() as f64;
        findings.exactly(format!("{name}: lost frames"), 0.0, drops);
    }
    let text = format!("{}h3 t0\nh4 t0\n", cases[0].1);
    let rates = under_dcqcn(&text, &[(0, 4), (1, 4), (2, 4), (3, 4)]);
    for (host, rate) in (1..).zip(rates) {
        let expected = 10.0 * PAYLOAD_SHARE;
        findings.within(
            0.1,
            format!("one uplink, DCQCN: H{host}"),
            "Gb/s",
            expected,
            rate,
        );
    }
}

/// Rates of payload of one stream each, by the real transport under DCQCN, when they have settled.
fn under_dcqcn(cables: &str, flows: &[(u32, u32)]) -> Vec<f64> {
    let text = cables.replace('\n', " 40Gbps 2m\n");
    let topology: Topology = text.parse().expect("an edge list");
    let mut marking = [None; 8];
    marking[3] = Some(Marking::DCQCN);
    let config = FabricConfig {
        mode: Mode::Lite,
        switch: SwitchConfig {
            marking,
            ..buffer(12_000_000)
        },
        ..FabricConfig::default()
    };
    let mut sim = Sim::new(topology, config).expect("a small network");
    sim.set_transport_config(TransportConfig {
        window_bytes: 4 << 20,
        window_packets: u32::MAX,
        ..TransportConfig::default()
    });
    let params = DcqcnParams::at(CoreRate::from_gbps(40));
    let streams = flows.iter().map(|&(from, to)| {
        let mut spec = StreamSpec::write(HostId(from), HostId(to), 1 << 18);
        (spec.count, spec.depth) = (1 << 40, 16);
        spec.options.congestion = CongestionControl::Dcqcn(params);
        sim.add_stream(spec).expect("connects")
    });
    let streams: Vec<_> = streams.collect();
    let span = Span::from_ms(60);
    sim.run_for(span);
    let before: Vec<u64> = streams.iter().map(|&s| sim.stream_bytes(s)).collect();
    sim.run_for(span);
    let both = streams.iter().zip(before);
    both.map(|(&s, before)| (sim.stream_bytes(s) - before) as f64 * 8e-9 / span.as_secs_f64())
        .collect()
}

/// Hosts, racks, leaves and spines of the victim's network.
const RACKS: &str = "h0 t1\nh1 t1\nh2 t1\nh3 t1\nh4 t1\nh5 t2\nh6 t3\nh7 t3\nh8 t4\n\
    t1 l1\nt1 l2\nt2 l1\nt2 l2\nt3 l3\nt3 l4\nt4 l3\nt4 l4\n\
    l1 s1\nl1 s2\nl2 s1\nl2 s2\nl3 s1\nl3 s2\nl4 s1\nl4 s2\n";

/// VS on T1 sends to VR on T2; four hosts on T1, and some on T3, send to R on T4.
pub(super) fn victim(findings: &mut Findings) {
    for (others, share) in [(0, 0.25), (1, 0.125), (2, 0.125)] {
        let text = RACKS.replace('\n', " 40Gbps 2m\n");
        let topology: Topology = text.parse().expect("an edge list");
        let mut sim = network(topology, buffer(2 << 20));
        let mut flows = vec![add_by(&mut sim, 0, 5, &["l1"])];
        // Two of the four by each uplink, and down to R by one leaf each.
        for (host, way) in [
            (1, ["l1", "s1", "l3"]),
            (2, ["l1", "s1", "l3"]),
            (3, ["l2", "s2", "l4"]),
            (4, ["l2", "s2", "l4"]),
        ] {
            flows.push(add_by(&mut sim, host, 8, &way));
        }
        for (host, way) in [(6, ["l3"]), (7, ["l4"])].into_iter().take(others) {
            flows.push(add_by(&mut sim, host, 8, &way));
        }
        let rate = settled(&mut sim, &flows)[0];
        let expected = 40.0 * share * PAYLOAD_SHARE;
        let what = format!("VS to VR, {others} senders on T3");
        findings.within(0.05, what, "Gb/s", expected, rate);
        let drops = sim.fabric().drops().total() as f64;
        findings.exactly(format!("lost frames, {others} senders"), 0.0, drops);
    }
    for others in 1..=2 {
        let mut flows = vec![(0, 5), (1, 8), (2, 8), (3, 8), (4, 8)];
        flows.extend([(6, 8), (7, 8)].into_iter().take(others));
        let rate = under_dcqcn(RACKS, &flows)[0];
        // The paper's figure shows about 20 Gb/s, whatever happens on T3. Here paths are those of one seed, and rates are still rising.
        let least = 40.0 * 0.125 * PAYLOAD_SHARE;
        let what = format!("VS to VR, {others} senders on T3, DCQCN: more than by PFC");
        findings.add(what, "Gb/s", least, rate, Bound::AtLeast);
    }
}

/// Adds a flow from a port with a hash that leads by the switches of these names.
fn add_by(sim: &mut Sim, from: u32, to: u32, way: &[&str]) -> FlowId {
    let spec = |port| FlowSpec::new(HostId(from), HostId(to)).source_port(port);
    let topology = sim.fabric().topology();
    let leads_by = |port: &u16| {
        let path = sim.fabric().path(&spec(*port)).unwrap_or_default();
        let names: Vec<&str> = path
            .iter()
            .map(|p| topology.name(topology.node_at(*p)))
            .collect();
        way.iter().all(|name| names.contains(name))
    };
    let port = (0xc000..=0xffff).find(leads_by);
    sim.add_flow(spec(port.expect("some port's hash leads that way")))
}
