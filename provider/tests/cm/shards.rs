//! Connections of QPs in other shards than the connection manager's.

use super::{Host, connected, talk};
use crate::common::{address, poll};
use urxe::cm::EventKind;
use urxe::{Context, RecvWr, SendWr, WcStatus};

const SHARDS: u32 = 3;

fn host() -> Host {
    let builder = Context::builder(address()).shards(SHARDS);
    Host::of(builder.open().expect("the address is free"))
}

/// What was received is acknowledged before the end is told, and the end fails what was posted, whichever shards the QPs are in.
#[test]
fn the_end_of_a_connection_reaches_the_qps_of_all_shards() {
    let [server, client] = [(); 2].map(|()| host());
    let mut shards = Vec::new();
    // Another number of QPs on one side, so that all pairs of shards come.
    for n in 0..u64::from(3 * SHARDS) {
        if n % 3 == 0 {
            let pd = client.context.alloc_pd().expect("a domain");
            let cq = client.context.create_cq(1).expect("a queue");
            pd.qp(&cq).create().expect("a QP");
        }
        let (passive, active, theirs, ours, _listener) = connected(&server, &client);
        shards.push((theirs.qp.shard(), ours.qp.shard()));
        talk(&theirs, &ours);
        for end in [&theirs, &ours] {
            end.qp.post_recv(&RecvWr::new(n, &[])).expect("room");
            end.qp.post_recv(&RecvWr::new(n + 1, &[])).expect("room");
        }
        let send = SendWr::send_inline(n, b"").signaled();
        ours.qp.post_send(&send).expect("room");
        let wc = poll(&theirs.cq);
        assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, n));
        // The identifier alone ends; the client takes no event so far.
        drop(passive);
        let wc = poll(&ours.cq);
        assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, n), "{n}");
        for id in [n, n + 1] {
            let wc = poll(&ours.cq);
            assert_eq!((wc.status, wc.wr_id), (WcStatus::WrFlushErr, id), "{n}");
        }
        client.expect(EventKind::Disconnected);
        drop(active);
    }
    shards.sort_unstable();
    shards.dedup();
    assert_eq!(shards.len(), (SHARDS * SHARDS) as usize, "{shards:?}");
}
