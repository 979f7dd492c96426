//! A message from a QP to itself, by the crate `sideway`: extended queue pairs and completion queues, by way of `dlopen`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{
    PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SetScatterGatherEntry,
    WorkRequestFlags,
};

const RECV: u64 = 1;
const SEND: u64 = 2;
const BYTES: usize = 1024;

fn main() {
    let devices = DeviceList::new().expect("a list of devices");
    let device = devices.iter().next().expect("a device");
    println!("{}", device.name());
    let context = device.open().expect("it opens");
    let pd = context.alloc_pd().expect("a PD");
    let (from, mut to) = (vec![0x5a_u8; BYTES], vec![0_u8; BYTES]);
    let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
    // SAFETY: both live until the end.
    let (source, target) = unsafe {
        let source = pd.reg_mr(from.as_ptr() as usize, BYTES, access);
        let target = pd.reg_mr(to.as_mut_ptr() as usize, BYTES, access);
        (source.expect("a region"), target.expect("a region"))
    };
    let cq = context
        .create_cq_builder()
        .setup_cqe(16)
        .build_ex()
        .expect("a CQ");
    let handle = GenericCompletionQueue::from(Arc::clone(&cq));
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(handle.clone()).setup_recv_cq(handle);
    let mut qp = builder
        .setup_max_send_wr(1)
        .setup_max_recv_wr(1)
        .build_ex()
        .expect("a QP");

    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::Init)
        .setup_pkey_index(0)
        .setup_port(1)
        .setup_access_flags(access);
    qp.modify(&attr).expect("INIT");
    let mut receive = qp.start_post_recv();
    // SAFETY: the memory lives until the end.
    unsafe {
        receive
            .construct_wr(RECV)
            .setup_sge(target.lkey(), to.as_mut_ptr() as u64, BYTES as u32)
    };
    receive.post().expect("room");

    let gid = context.query_gid(1, 0).expect("a GID");
    connect(&mut qp, &gid);

    let mut send = qp.start_post_send();
    let request = send
        .construct_wr(SEND, WorkRequestFlags::Signaled)
        .setup_send();
    // SAFETY: as above.
    unsafe { request.setup_sge(source.lkey(), from.as_ptr() as u64, BYTES as u32) };
    send.post().expect("room");

    let start = Instant::now();
    let mut open = vec![RECV, SEND];
    while !open.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "open: {open:?}");
        // Nothing there is an error here.
        if let Ok(mut found) = cq.start_poll() {
            for wc in &mut found {
                assert_eq!(wc.status(), WorkCompletionStatus::Success as u32);
                open.retain(|id| *id != wc.wr_id());
            }
        }
    }
    assert_eq!(from, to);
    println!("received");
}

/// To itself: the packet sequence numbers of both ends are one.
fn connect(qp: &mut impl QueuePair, gid: &Gid) {
    let mut path = AddressHandleAttribute::new();
    path.setup_port(1)
        .setup_grh_src_gid_index(0)
        .setup_grh_dest_gid(gid)
        .setup_grh_hop_limit(64);
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToReceive)
        .setup_path_mtu(Mtu::Mtu1024)
        .setup_dest_qp_num(qp.qp_number())
        .setup_rq_psn(7)
        .setup_max_dest_read_atomic(1)
        .setup_min_rnr_timer(1)
        .setup_address_vector(&path);
    qp.modify(&attr).expect("RTR");
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToSend)
        .setup_sq_psn(7)
        .setup_timeout(14)
        .setup_retry_cnt(7)
        .setup_rnr_retry(7)
        .setup_max_read_atomic(1);
    qp.modify(&attr).expect("RTS");
}
