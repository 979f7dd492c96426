//! What a datagram socket dropped: datagrams may be lost, but not without a trace.

use crate::verbose;

/// What was dropped. With `URXE_VERBOSE` the first of each kind is told, and the rest when the socket is closed.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// Said in the name of an address that it did not come from.
    pub(super) forged: u64,
    /// Not what such sockets send.
    pub(super) strange: u64,
    /// There were as many messages as the socket keeps.
    pub(super) no_room: u64,
}

impl Dropped {
    pub(super) fn count_forged(&mut self) {
        count(&mut self.forged, "it names an address that it is not from");
    }

    pub(super) fn count_strange(&mut self) {
        count(&mut self.strange, "it is not from an rsocket");
    }

    pub(super) fn count_no_room(&mut self) {
        let why = "the program has not received those before it (RDMA_RQSIZE)";
        count(&mut self.no_room, why);
    }

    /// The socket is closed.
    pub(super) fn tell(&self) {
        let Dropped {
            forged,
            strange,
            no_room,
        } = self;
        if verbose::is_on() && forged + strange + no_room > 0 {
            eprintln!(
                "urxe: a datagram socket dropped {forged} messages in the name of another address, {strange} that \
                 were not from an rsocket, and {no_room} that it had no room for"
            );
        }
    }
}

fn count(counter: &mut u64, why: &str) {
    *counter += 1;
    if *counter == 1 && verbose::is_on() {
        eprintln!("urxe: a datagram socket dropped a message: {why}");
    }
}
