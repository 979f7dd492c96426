//! Where the system gives no more descriptors: packets go through sockets, and no program is told.

use urxe::ConnectOptions;

use super::peer::{Peer, ping};
use super::{end, records};
use crate::common::{alone, exchange};

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A process that can open nothing any more connects all the same: it makes no ring, and opens none.
#[test]
fn a_process_without_descriptors_uses_sockets() {
    let (mut peer, a) = (Peer::start(), end());
    peer.ask("limit");
    peer.connect(&a.qp, &ConnectOptions::default());
    (0..100).for_each(|number| ping(&a, number));
    assert_eq!(peer.count("rx_records") + peer.count("tx_records"), 0);
    let [_, read] = records(&a);
    assert_eq!(read, 0);
    assert!(a.counter("rx_calls") > 0);
}

/// The same of this side; and when there are descriptors again, neighbours that come use memory.
#[test]
fn a_context_goes_on_when_there_are_no_descriptors_left() {
    alone(
        "wire::limits::a_context_goes_on_when_there_are_no_descriptors_left",
        || {
            let (a, b) = (end(), end());
            let (c, d) = (end(), end());
            let limits = getrlimit(Resource::Nofile);
            let few = Rlimit {
                current: Some(256),
                ..limits
            };
            setrlimit(Resource::Nofile, few).expect("less is always possible");
            let ballast: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            crate::common::connect(&a.qp, &b.qp, &ConnectOptions::default());
            exchange(&a, &b, 1);
            assert_eq!((records(&a), records(&b)), ([0; 2], [0; 2]));
            drop(ballast);
            crate::common::connect(&c.qp, &d.qp, &ConnectOptions::default());
            exchange(&c, &d, 1);
            assert!(
                records(&c)
                    .iter()
                    .chain(&records(&d))
                    .all(|&count| count > 0)
            );
        },
    );
}
