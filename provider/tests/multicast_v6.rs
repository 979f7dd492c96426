//! Multicast over IPv6 and on a real interface. Loopback does not do IPv6 multicast, so
//! the interface is a virtual one in a network of the test's own.

use std::net::IpAddr;

use crate::common::*;
use urxe::{Context, Mr, Qkey, QpType, Qpn, SendWr};

const QKEY: Qkey = Qkey(0x0123_4567);

fn member(addr: &str) -> (End, Mr) {
    let addr: IpAddr = addr.parse().expect("an address");
    let end = End::with(Context::open(addr).expect("free"), |qp| {
        qp.qp_type(QpType::Ud)
    });
    end.qp.start_datagrams(QKEY).expect("starts");
    let memory = end.memory(4096);
    (end, memory)
}

#[test]
fn groups_of_every_kind_on_an_interface() {
    in_namespace("multicast_v6::groups_of_every_kind_on_an_interface", || {
        ip("link set urxe0 up");
        ip("link set urxe1 up");
        for addr in ["10.79.0.1/24", "10.79.0.2/24"] {
            ip(&format!("addr add {addr} dev urxe0"));
        }
        for addr in ["fd79::1/64", "fd79::2/64"] {
            ip(&format!("addr add {addr} dev urxe0 nodad"));
        }
        let v4 = [member("10.79.0.1"), member("10.79.0.2")];
        let v6 = [member("fd79::1"), member("fd79::2")];
        // Of the local link, of the site, of the whole net; the last in both of its forms.
        for (members, group) in [
            (&v6, "ff12::7572:7865:1"),
            (&v6, "ff15::7572:7865:2"),
            (&v6, "ff0e::7572:7865:3"),
            (&v4, "239.79.0.1"),
            (&v4, "224.0.79.1"),
        ] {
            let group: IpAddr = group.parse().expect("a group");
            for (end, memory) in members {
                end.qp.attach_mcast(group.into()).expect("attaches");
                end.recv(1, memory);
            }
            let (sender, _) = &members[0];
            let ah = sender.pd.create_ah_to(group).expect("a path");
            let wr = SendWr::send_inline(9, b"to all").ud_addr(&ah, Qpn::MULTICAST, QKEY);
            sender.qp.post_send(&wr).expect("posts");
            for (end, memory) in members {
                let wc = end.succeed();
                assert_eq!(
                    (wc.byte_len, wc.src_qp),
                    (46, sender.qp.qp_num()),
                    "{group}"
                );
                assert_eq!(bytes(memory, 46)[40..], *b"to all", "{group}");
                end.qp.detach_mcast(group.into()).expect("detaches");
            }
        }
    });
}
