//! Calls of the drop-in library in any order on objects that are alive, on a network in memory. See
//! `fuzz/abi/targets/calls/`.

use std::sync::Arc;

use urxe::network::Network;

use crate::lan::Lan;

/// Runs the bytes as a script; panics if a call does what it must never do, or something is left in the end.
pub fn target(data: &[u8]) {
    let lan = Arc::<Lan>::default();
    let hosts = [1, 2].map(|number| {
        let host = lan.host(number);
        let addr = host.addr();
        (host as Arc<dyn Network>, addr)
    });
    urxe_verbs::fuzzing::calls(hosts, data, &mut |what| lan.act(what));
    assert!(lan.is_empty(), "something holds a context");
}
