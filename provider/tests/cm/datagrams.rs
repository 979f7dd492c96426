//! Datagrams and groups.

use super::{End, Host};
use std::net::{IpAddr, SocketAddr};
use urxe::cm::{ConnParam, EventKind, Id, PortSpace, UDP_QKEY};
use urxe::{Access, QpType, RecvWr, SendWr};

#[test]
fn datagrams_find_their_qp() {
    let [server, client] = Host::pair();
    let (_listener, addr) = server.listen(PortSpace::Udp);
    let active = client.resolved(PortSpace::Udp, addr);
    active
        .connect(&ConnParam {
            private_data: b"where?".to_vec(),
            ..ConnParam::default()
        })
        .expect("asks");
    let request = server.expect(EventKind::ConnectRequest);
    assert_eq!(&request.private_data()[..6], b"where?");
    let theirs = End::new(&server, QpType::Ud);
    request.id.attach_qp(&theirs.qp).expect("attaches");
    let answer = ConnParam {
        private_data: b"here".to_vec(),
        ..ConnParam::default()
    };
    request.id.accept(&answer).expect("accepts");
    let found = client.expect(EventKind::Established);
    let to = found.ud().expect("where it is").clone();
    assert_eq!((to.qp_num, to.qkey), (theirs.qp.qp_num(), UDP_QKEY));
    assert_eq!(&to.private_data[..4], b"here");

    let ours = End::new(&client, QpType::Ud);
    active.attach_qp(&ours.qp).expect("attaches");
    let memory = theirs.pd.reg_owned(vec![0; 104], Access::LOCAL_WRITE);
    let memory = memory.expect("memory");
    let sge = [memory.sge(..)];
    let recv = RecvWr::new(3, &sge);
    theirs.qp.post_recv(&recv).expect("room");
    let ah = ours.pd.create_ah(&to.ah_attr).expect("a handle");
    let send = SendWr::send_inline(1, b"hello").ud_addr(&ah, to.qp_num, to.qkey);
    ours.qp.post_send(&send).expect("room");
    let wc = theirs.cq.poll_one().expect("polls");
    assert_eq!(wc.ok().expect("received").byte_len, 45);

    // A refused peer hears it by the status of the answer.
    let second = client.resolved(PortSpace::Udp, addr);
    second.connect(&ConnParam::default()).expect("asks");
    let request = server.expect(EventKind::ConnectRequest);
    request.id.reject(b"no").expect("refuses");
    let refused = client.expect(EventKind::Unreachable);
    assert_eq!(
        (refused.status, &refused.private_data()[..2]),
        (2, &b"no"[..])
    );
    // And no listener at all is another status.
    let third = client.resolved(PortSpace::Udp, SocketAddr::new(server.addr, 9));
    third.connect(&ConnParam::default()).expect("asks");
    assert_eq!(client.expect(EventKind::Unreachable).status, 1);
}

#[test]
fn groups_are_joined_with_an_event() {
    let [host, other] = Host::pair();
    let id = Id::new(&host.channel, PortSpace::Udp).expect("an identifier");
    id.bind_addr(SocketAddr::new(host.addr, 0)).expect("binds");
    let end = End::new(&host, QpType::Ud);
    id.attach_qp(&end.qp).expect("attaches");
    let group: IpAddr = "239.81.7.7".parse().expect("literal");
    id.join_multicast(group, 77).expect("joins");
    let joined = host.expect(EventKind::MulticastJoin);
    let to = joined.ud().expect("what to send with").clone();
    assert_eq!(
        (to.token, to.qkey, to.qp_num.get()),
        (77, UDP_QKEY, 0xff_ffff)
    );
    assert_eq!((to.ah_attr.remote, to.ah_attr.local), (group, host.addr));
    let error = id.join_multicast(group, 0).expect_err("twice");
    assert_eq!(error.errno(), 98, "{error}");

    // Another host sends to it without being a member.
    let sender = End::new(&other, QpType::Ud);
    sender.qp.start_datagrams(UDP_QKEY).expect("starts");
    let memory = end.pd.reg_owned(vec![0; 104], Access::LOCAL_WRITE);
    let memory = memory.expect("memory");
    end.qp
        .post_recv(&RecvWr::new(3, &[memory.sge(..)]))
        .expect("room");
    let ah = sender.pd.create_ah_to(group).expect("a handle");
    let send = SendWr::send_inline(1, b"to all").ud_addr(&ah, to.qp_num, to.qkey);
    sender.qp.post_send(&send).expect("room");
    assert_eq!(end.cq.poll_one().expect("polls").byte_len, 46);

    id.leave_multicast(group).expect("leaves");
    assert_eq!(id.leave_multicast(group).expect_err("twice").errno(), 22);
    let error = id.join_multicast(other.addr, 0).expect_err("no group");
    assert_eq!(error.errno(), 22, "{error}");
}
