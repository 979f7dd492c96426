//! A message from a QP to itself, by the crate `ibverbs`.

use std::time::{Duration, Instant};

use ibverbs::ibv_qp_type::IBV_QPT_RC;

const RECV: u64 = 1;
const SEND: u64 = 2;

fn main() {
    let devices = ibverbs::devices().expect("a list of devices");
    let device = devices.iter().next().expect("a device");
    println!("{}", device.name().expect("a name").to_string_lossy());
    let context = device.open().expect("it opens");
    let cq = context.create_cq(16, 0).expect("a CQ");
    let pd = context.alloc_pd().expect("a PD");
    let mut builder = pd.create_qp(&cq, &cq, IBV_QPT_RC);
    let prepared = builder.set_gid_index(0).build().expect("a QP");
    let endpoint = prepared.endpoint();
    let mut qp = prepared.handshake(endpoint).expect("it connects");

    let mut memory = pd.allocate::<u64>(2).expect("memory");
    (memory[0], memory[1]) = (0, 0x0123_4567_89ab_cdef);
    // SAFETY: the memory lives until both requests are complete.
    unsafe {
        qp.post_receive(&mut memory, ..1, RECV).expect("room");
        qp.post_send(&mut memory, 1.., SEND).expect("room");
    }
    let start = Instant::now();
    let mut open = vec![RECV, SEND];
    let mut completions = [ibverbs::ibv_wc::default(); 2];
    while !open.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "open: {open:?}");
        for wc in cq.poll(&mut completions).expect("polls") {
            assert_eq!(wc.error(), None);
            open.retain(|id| *id != wc.wr_id());
        }
    }
    assert_eq!(memory[0], memory[1]);
    println!("received");
}
