//! Many at once: the backlog, and ten thousand connections.

use urxe_core::Time;
use urxe_core::cm::{CmError, CmEvent, Scope};
use urxe_wire::cm::PortSpace;

use crate::wire::{MS, PORT, Wire, addr, agent, answer, path, request};

#[test]
fn the_backlog_bounds_what_strangers_can_have_kept() {
    let mut host = agent(0, 5);
    let listener = host
        .listen(PortSpace::TCP, PORT, Scope::One(addr(0)), 10)
        .expect("free");
    assert_eq!(
        host.listen(PortSpace::TCP, PORT, Scope::AnyV4, 1),
        Err(CmError::InUse)
    );
    let mut strangers = agent(1, 6);
    let mut accepted = Vec::new();
    for n in 0..1000 {
        strangers
            .connect(Time(MS), &request(100 + n, b""))
            .expect("room");
        let mad = strangers.front().expect("a REQ").mad.to_vec();
        strangers.pop();
        host.handle_mad(Time(MS), path(0), &mad);
        while let Some(event) = host.poll_event() {
            accepted.push(event.id());
        }
    }
    assert_eq!(
        (host.len(), accepted.len(), host.take_counts().refused),
        (10, 10, 990)
    );
    // Answers to them are bounded too, whatever the sender.
    for n in 0..5000 {
        strangers
            .connect(Time(MS), &request(2000 + n, b""))
            .expect("room");
        let mad = strangers.front().expect("a REQ").mad.to_vec();
        strangers.pop();
        host.handle_mad(Time(MS), path(0), &mad);
    }
    let mut waiting = 0;
    while host.front().is_some() {
        host.pop();
        waiting += 1;
    }
    assert_eq!(waiting, 1024);
    // One that is taken makes room for one.
    assert!(host.take(accepted[0]));
    strangers
        .connect(Time(MS), &request(9000, b""))
        .expect("room");
    let mad = strangers.front().expect("a REQ").mad.to_vec();
    host.handle_mad(Time(MS), path(0), &mad);
    assert!(matches!(host.poll_event(), Some(CmEvent::Request(..))));
    // The listener is gone: requests that were not taken are refused.
    host.unlisten(Time(MS), listener);
    assert_eq!(host.len(), 1);
    host.destroy(Time(MS), accepted[0]);
    assert_eq!((host.len(), host.listener_count()), (0, 0));
}

#[test]
fn ten_thousand_connections_are_made_and_gone() {
    let mut wire = Wire::new(3, 0, 0, 1000);
    let count = 10_000;
    for n in 0..count {
        wire.asks(1000 + n);
    }
    let (mut made, mut ids) = (0, Vec::new());
    let end = wire.now + 3000 * MS;
    loop {
        let more = wire.step(end);
        let now = wire.now;
        while let Some(event) = wire.agents[0].poll_event() {
            match event {
                CmEvent::Request(id, incoming) => {
                    wire.agents[0].take(id);
                    let qpn = 100_000 + incoming.terms.qpn.get();
                    wire.agents[0].accept(now, id, &answer(qpn)).expect("asked");
                }
                CmEvent::Established(id, _) => {
                    ids.push((0, id));
                    made += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = wire.agents[1].poll_event() {
            let CmEvent::Reply(id, _) = event else {
                panic!("{event:?}")
            };
            wire.agents[1].establish(id).expect("replied");
            ids.push((1, id));
        }
        if !more {
            break;
        }
    }
    assert_eq!((made, ids.len()), (count, 2 * count as usize));
    let now = wire.now;
    for (host, id) in ids {
        wire.agents[host].destroy(now, id);
    }
    wire.run(2000);
    wire.assert_empty("all of them");
}
