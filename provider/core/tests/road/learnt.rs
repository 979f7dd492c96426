//! Sides that told each other nothing when they connected: two that know how find out that only what is lost need come again, and no
//! other peer is ever sent what it might not know.

use urxe_core::Recovery;
use urxe_core::work::WrOpcode;

use crate::ends::Load;
use crate::road::{Outcome, Road};
use crate::support::{AGREES, RECOVERY};
use crate::{MBIT, MS, SEED, run};

fn untold(recovery: [Recovery; 2], road: Road, op: WrOpcode, seconds: f64) -> (f64, Outcome) {
    RECOVERY.set(recovery);
    AGREES.set(false);
    run(road, Load::new(op), seconds)
}

fn long(loss: u64) -> Road {
    Road::new(200 * MBIT, 20 * MS, loss)
}

#[test]
fn two_that_know_how_find_out() {
    for (op, loss, least) in [
        (WrOpcode::RdmaWrite, 1_000, 0.95),
        (WrOpcode::Send, 1_000, 0.95),
        (WrOpcode::RdmaWrite, 5_000, 0.8),
    ] {
        let (ratio, out) = untold([Recovery::Selective; 2], long(loss), op, 16.0);
        assert!(ratio >= least, "{ratio:.3}, not {least}, seed {SEED}");
        assert!(out.unknown > 0, "seed {SEED}: {out:?}");
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
                for op in [WrOpcode::RdmaWrite, WrOpcode::RdmaRead] {
                    let (_, out) = untold(pair, road, op, 4.0);
                    assert_eq!(out.unknown, 0, "{pair:?} {road:?} {op:?}, seed {SEED}");
                }
            }
        }
    }
}
