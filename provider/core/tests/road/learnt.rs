//! Sides that told each other nothing when they connected: two that know how find out that only what is lost need come again, and no
//! other peer is ever sent what it might not know.

use urxe_core::Recovery;
use urxe_core::work::WrOpcode;

use crate::ends::Load;
use crate::road::{Outcome, Road};
use crate::support::{AGREES, RECOVERY};
use crate::{MBIT, MS, SEED, run};

fn untold(recovery: [Recovery; 2], road: Road, load: Load, seconds: f64) -> (f64, Outcome) {
    RECOVERY.set(recovery);
    AGREES.set(false);
    run(road, load, seconds)
}

/// Every so many of the messages are READs.
fn beside_reads(op: WrOpcode, read_every: u64) -> Load {
    Load {
        read_every,
        ..Load::new(op)
    }
}

fn long(loss: u64) -> Road {
    Road::new(200 * MBIT, 20 * MS, loss)
}

/// As if they had been told, after the first round trips: from messages that are lost alone or in a row, or come late, or are dropped by a full
/// queue at the start.
#[test]
fn two_that_know_how_find_out() {
    let burst = Road {
        burst: 5,
        ..long(1_000)
    };
    let reorder = Road {
        reorder: 1_000,
        ..long(0)
    };
    for (op, road, least) in [
        (WrOpcode::RdmaWrite, long(1_000), 0.97),
        (WrOpcode::Send, long(1_000), 0.97),
        (WrOpcode::RdmaWrite, long(100), 0.97),
        (WrOpcode::RdmaWrite, long(5_000), 0.92),
        (WrOpcode::RdmaWrite, burst, 0.95),
        (WrOpcode::RdmaWrite, reorder, 0.97),
        (
            WrOpcode::RdmaWrite,
            Road::new(200 * MBIT, MS / 10, 1_000),
            0.95,
        ),
        (
            WrOpcode::RdmaWrite,
            Road::new(200 * MBIT, 100 * MS, 1_000),
            0.9,
        ),
    ] {
        let (ratio, out) = untold([Recovery::Selective; 2], road, Load::new(op), 16.0);
        assert!(ratio >= least, "{ratio:.3}, not {least}, seed {SEED}");
        assert!(out.unknown > 0, "seed {SEED}: {out:?}");
    }
}

/// Round trips are short and queues may be: a window that narrows at the first loss has no room for a new packet, which would tell what the
/// peer misses next.
#[test]
fn others_go_on_where_the_window_is_full() {
    let short = |loss, queue| Road {
        queue,
        ..Road::new(1_000 * MBIT, MS / 10, loss)
    };
    for (other, road, least) in [
        (Recovery::GoBackN, short(100, 4_000_000), 0.75),
        (Recovery::GoBackN, short(1_000, 4_000_000), 0.7),
        (Recovery::GoBackN, short(0, 100_000), 0.75),
        (Recovery::Keep, short(100, 4_000_000), 0.95),
        (Recovery::Keep, short(1_000, 4_000_000), 0.8),
        (Recovery::Keep, short(1_000, 100_000), 0.65),
        (Recovery::Keep, short(0, 100_000), 0.9),
    ] {
        let load = Load::new(WrOpcode::RdmaWrite);
        let (ratio, out) = untold([Recovery::Selective, other], road, load, 2.0);
        assert!(
            ratio >= least,
            "{other:?}: {ratio:.3}, not {least}, seed {SEED}"
        );
        assert_eq!(out.unknown, 0, "seed {SEED}: {out:?}");
    }
}

/// READs and their answers are under way all the time, and some of both are lost. The answers have the other way of the road: there is
/// more to carry than one way does.
#[test]
fn two_that_read_find_out() {
    for (op, read_every, loss, least) in [
        (WrOpcode::RdmaWrite, 2, 1_000, 1.2),
        (WrOpcode::Send, 8, 1_000, 1.05),
        (WrOpcode::RdmaWrite, 8, 5_000, 0.95),
    ] {
        let load = beside_reads(op, read_every);
        let (ratio, out) = untold([Recovery::Selective; 2], long(loss), load, 16.0);
        assert!(ratio >= least, "{ratio:.3}, not {least}, seed {SEED}");
        assert!(out.unknown > 0, "seed {SEED}: {out:?}");
    }
}

/// READs alone, of peers that repeat what they are asked for and say nothing: answers ahead of a gap are kept, and of each request what is
/// missing is asked for again, but nothing of what is behind it. A request that is lost costs all behind it at a peer that drops those.
#[test]
fn reads_of_any_peer_lose_less() {
    let reorder = Road {
        reorder: 1_000,
        ..long(0)
    };
    let short = |loss| Road::new(200 * MBIT, MS, loss);
    for (other, road, least) in [
        (Recovery::Keep, long(1_000), 0.6),
        (Recovery::Keep, long(5_000), 0.4),
        (Recovery::Keep, reorder, 0.75),
        (Recovery::Keep, short(1_000), 0.85),
        (Recovery::GoBackN, long(1_000), 0.6),
        (Recovery::GoBackN, long(5_000), 0.2),
        (Recovery::GoBackN, reorder, 0.75),
        (Recovery::GoBackN, short(1_000), 0.85),
        (Recovery::GoBackN, short(5_000), 0.4),
    ] {
        let pair = [Recovery::Selective, other];
        let (ratio, out) = untold(pair, road, Load::new(WrOpcode::RdmaRead), 16.0);
        assert!(
            ratio >= least,
            "{other:?}: {ratio:.3}, not {least}, seed {SEED}"
        );
        assert_eq!((out.unknown, out.refused), (0, 0), "seed {SEED}: {out:?}");
    }
}

/// Whatever a road does with packets: they are lost, alone or in a row, come late, or both.
#[test]
fn no_other_peer_is_sent_what_it_might_not_know() {
    let roads = [
        long(1_000),
        long(5_000),
        Road {
            burst: 5,
            ..long(1_000)
        },
        Road {
            reorder: 1_000,
            ..long(0)
        },
        Road {
            reorder: 5_000,
            ..long(2_000)
        },
        Road::new(200 * MBIT, MS / 10, 1_000),
    ];
    for other in [Recovery::GoBackN, Recovery::Keep] {
        for pair in [[Recovery::Selective, other], [other, Recovery::Selective]] {
            for road in roads {
                for (load, seconds) in [
                    (Load::new(WrOpcode::RdmaWrite), 4.0),
                    (Load::new(WrOpcode::RdmaRead), 20.0),
                    (beside_reads(WrOpcode::RdmaWrite, 2), 4.0),
                ] {
                    let (_, out) = untold(pair, road, load, seconds);
                    assert_eq!(out.unknown, 0, "{pair:?} {road:?} {load:?}, seed {SEED}");
                }
            }
        }
    }
}
