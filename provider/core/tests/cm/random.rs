//! Applications that do whatever they like, on a wire that does the same.

use std::collections::BTreeMap;

use urxe_core::cm::{CmEvent, CommId};
use urxe_wire::cm::RejReason;

use crate::support::Rng;
use crate::wire::{MS, Wire, answer};

/// What an application saw of one end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct End {
    made: bool,
    /// Something said that it is over, or will not be.
    over: bool,
    destroyed: bool,
}

/// Rng applications: they accept, refuse, drop, disconnect whenever they like.
fn live(seed: u64) {
    let mut random = Rng(seed ^ 0xabcd);
    let (lost, twice) = (random.below(400), random.below(300));
    let delay = 1 + random.below(2000) * MS;
    let mut wire = Wire::new(seed, lost, twice, delay);
    let mut ends: [BTreeMap<CommId, End>; 2] = Default::default();
    // By the asking side's QP: both ids.
    let mut pairs: BTreeMap<u32, [Option<CommId>; 2]> = BTreeMap::new();
    let count = 12;
    for n in 0..count {
        let qpn = 1000 + n;
        let id = wire.asks(qpn);
        ends[1].insert(id, End::default());
        pairs.insert(qpn, [None, Some(id)]);
    }
    let end = wire.now + 1_000_000 * MS;
    while wire.step(end) {
        let now = wire.now;
        for host in 0..2 {
            while let Some(event) = wire.agents[host].poll_event() {
                let id = event.id();
                let dice = random.below(20);
                match event {
                    CmEvent::Request(id, incoming) => {
                        assert!(wire.agents[0].take(id), "seed {seed}");
                        let qpn = incoming.terms.qpn.get();
                        // A peer that has asked in vain may ask again, as another connection.
                        pairs.entry(qpn).or_default()[0] = Some(id);
                        ends[0].insert(id, End::default());
                        match dice {
                            0 => {
                                let reason = RejReason::CONSUMER_DEFINED;
                                wire.agents[0].reject(now, id, reason, b"").expect("asked");
                                ends[0].entry(id).or_default().over = true;
                            }
                            1 => {
                                wire.agents[0].destroy(now, id);
                                ends[0].entry(id).or_default().destroyed = true;
                            }
                            _ => {
                                let answered = wire.agents[0].accept(now, id, &answer(qpn + 5000));
                                answered.expect("asked");
                            }
                        }
                    }
                    CmEvent::Reply(id, _) => match dice {
                        0 => {
                            let reason = RejReason::CONSUMER_DEFINED;
                            wire.agents[1]
                                .reject(now, id, reason, b"")
                                .expect("replied");
                            ends[1].entry(id).or_default().over = true;
                        }
                        1 => {
                            wire.agents[1].destroy(now, id);
                            ends[1].entry(id).or_default().destroyed = true;
                        }
                        _ => {
                            wire.agents[1].establish(id).expect("replied");
                            ends[1].entry(id).or_default().made = true;
                        }
                    },
                    CmEvent::Established(..) => {
                        ends[0].entry(id).or_default().made = true;
                    }
                    CmEvent::Rejected(..) | CmEvent::Unreachable(_) => {
                        ends[host].entry(id).or_default().over = true;
                    }
                    CmEvent::Disconnected { timed_out, .. } => {
                        assert!(!timed_out, "seed {seed}: the peer is there");
                        ends[host].entry(id).or_default().over = true;
                    }
                    CmEvent::TimewaitExit(_) => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
                let known = ends[host].get(&id).copied().unwrap_or_default();
                if known.made && !known.over && !known.destroyed && random.below(3) == 0 {
                    if random.below(2) == 0 {
                        wire.agents[host].disconnect(now, id).expect("there");
                    } else {
                        wire.agents[host].destroy(now, id);
                        ends[host].entry(id).or_default().destroyed = true;
                    }
                }
            }
        }
    }
    check_agreement(seed, &ends, &pairs);
    let now = wire.now;
    for (host, ends) in ends.iter().enumerate() {
        for (id, end) in ends {
            if !end.destroyed {
                wire.agents[host].destroy(now, *id);
            }
        }
    }
    wire.run(300_000);
    for agent in &mut wire.agents {
        let event = agent.poll_event();
        assert!(
            event.is_none(),
            "seed {seed}: of one that was destroyed: {event:?}"
        );
    }
    wire.assert_empty(&format!("seed {seed}"));
}

/// In the end both know the same: it is there, or it is over.
fn check_agreement(
    seed: u64,
    ends: &[BTreeMap<CommId, End>; 2],
    pairs: &BTreeMap<u32, [Option<CommId>; 2]>,
) {
    for (qpn, ids) in pairs {
        let end = |host: usize| ids[host].and_then(|id| ends[host].get(&id).copied());
        let (passive, active) = (end(0).unwrap_or_default(), end(1).unwrap_or_default());
        let lives = |end: End| end.made && !end.over && !end.destroyed;
        assert_eq!(
            lives(passive),
            lives(active),
            "seed {seed}, QP {qpn}: {passive:?} {active:?}"
        );
        assert!(
            lives(active) || active.over || active.destroyed,
            "seed {seed}, QP {qpn}: {active:?} waits for ever"
        );
    }
}

#[test]
fn both_sides_agree_whatever_is_lost() {
    for seed in 0..400 {
        live(seed);
    }
}
