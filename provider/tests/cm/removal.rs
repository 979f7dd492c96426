//! An interface that goes away, or changes: identifiers that are bound to it hear of that.

use super::{Host, connected};
use crate::common::{self, ip};
use std::net::SocketAddr;
use urxe::cm::{EventKind, Id, PortSpace};

#[test]
fn identifiers_hear_of_their_interface() {
    common::in_namespace("cm::removal::identifiers_hear_of_their_interface", || {
        in_the_namespace();
    });
}

fn in_the_namespace() {
    ip("addr add 10.79.0.1/24 dev urxe0");
    ip("addr add 10.79.1.1/24 dev urxe1");
    ip("link set lo up");
    ip("link set urxe0 up");
    ip("link set urxe1 up");
    // Two addresses of this host: packets between them go through loopback.
    let [server, client] =
        ["10.79.0.1", "10.79.1.1"].map(|addr| Host::new(addr.parse().expect("an address")));
    let (passive, active, _theirs, _ours, listener) = connected(&server, &client);
    let unbound = Id::new(&server.channel, PortSpace::Tcp).expect("an identifier");
    let gone = Id::new(&server.channel, PortSpace::Tcp).expect("an identifier");
    gone.bind_addr(SocketAddr::new(server.addr, 0))
        .expect("binds");
    drop(gone);
    let heard = |host: &Host, kind, count| {
        let mut numbers: Vec<u64> = (0..count).map(|_| host.expect(kind).id.number()).collect();
        numbers.sort_unstable();
        host.no_event();
        numbers
    };
    let mut of_server = vec![listener.number(), passive.number()];
    of_server.sort_unstable();
    // What happens to others, or to the IP address or the carrier, is not told.
    ip("link add urxe2 type veth peer name urxe3");
    ip("link del urxe2");
    ip("link set urxe1 down");
    ip("link set urxe1 up");
    ip("addr add 10.79.0.2/24 dev urxe0");
    ip("link set urxe0 address 02:00:00:00:00:79");
    assert_eq!(heard(&server, EventKind::AddrChange, 2), of_server);
    client.no_event();
    // A veth goes with its peer.
    ip("link del urxe0");
    assert_eq!(heard(&server, EventKind::DeviceRemoval, 2), of_server);
    let of_client = [active.number()];
    assert_eq!(heard(&client, EventKind::DeviceRemoval, 1), of_client);
    drop(unbound);
}
