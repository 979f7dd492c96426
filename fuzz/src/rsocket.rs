//! A hostile peer against an rsocket's connection, on a network in memory. See
//! `fuzz/abi/targets/hostile.rs`.

use std::sync::Arc;

use urxe::network::enter;
use urxe::{Context, Pd};

use crate::lan::{Host, Lan};

/// Runs the bytes as a script; panics if the connection does what it must never do.
pub fn target(data: &[u8]) {
    let lan = Arc::<Lan>::default();
    let [ours, theirs] = [1, 2].map(|number| domain(&lan.host(number)));
    let mut deliver = |what| lan.act(what);
    urxe_verbs::fuzzing::hostile_rsocket(&ours, &theirs, data, &mut deliver);
    drop((ours, theirs));
    assert!(lan.is_empty(), "something holds a context");
}

fn domain(host: &Arc<Host>) -> Pd {
    let _entered = enter(host.clone());
    let context = Context::open(host.addr()).expect("the host has it");
    context.alloc_pd().expect("there is room")
}
