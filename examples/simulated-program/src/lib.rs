//! A counter that clients add to by RDMA: the server's program takes no part in it.

use std::net::SocketAddr;
use std::time::Duration;

use urxe::cm::{self, ConnectBuilder, EventKind};
use urxe::{Access, Error, SendWr};

/// Bytes of the message in which the server says where its counter is.
const WELCOME: usize = 12;

/// Has a counter until so many clients have come and gone, and returns it.
pub fn serve(at: SocketAddr, clients: usize) -> Result<u64, Error> {
    let listener = cm::listen(at)?;
    let mut counters = Vec::new();
    for _ in 0..clients {
        let client = listener.accept()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let counter = client.pd().reg_owned(vec![0; 8], access)?;
        let mut welcome = counter.addr().to_be_bytes().to_vec();
        welcome.extend(counter.rkey().0.to_be_bytes());
        client.qp().post_send(&SendWr::send_inline(1, &welcome))?;
        counters.push((client, counter));
    }
    let mut sum = 0;
    for (client, counter) in counters {
        while client
            .events()
            .wait(None)?
            .is_some_and(|event| event.kind != EventKind::Disconnected)
        {}
        let mut bytes = [0; 8];
        counter.read(0, &mut bytes);
        sum += u64::from_ne_bytes(bytes);
    }
    Ok(sum)
}

/// Adds 1 so many times.
pub fn add(server: SocketAddr, times: u64) -> Result<(), Error> {
    let connection = ConnectBuilder::new(server).connect()?;
    let memory = connection
        .pd()
        .reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
    connection
        .qp()
        .post_recv(&urxe::RecvWr::new(1, &[memory.sge(..WELCOME)]))?;
    connection.cq().poll_one()?.ok()?;
    let mut welcome = [0; WELCOME];
    memory.read(0, &mut welcome);
    let (addr, rkey) = welcome.split_at(8);
    let addr = u64::from_be_bytes(addr.try_into().expect("eight bytes"));
    let rkey = urxe::Rkey(u32::from_be_bytes(rkey.try_into().expect("four bytes")));
    for number in 0..times {
        let before = [memory.sge(16..24)];
        let add = SendWr::atomic_fetch_add(2, &before, addr, rkey, 1).signaled();
        connection.qp().post_send(&add)?;
        connection.cq().poll_one()?.ok()?;
        let mut value = [0; 8];
        memory.read(16, &mut value);
        assert_eq!(
            u64::from_ne_bytes(value),
            number,
            "an addition was lost, or done twice"
        );
    }
    // If the answer to it is lost again and again, the server knows all the same.
    let _ = connection.disconnect();
    Ok(())
}

/// How long a simulated run of this may take.
pub const LIMIT: Duration = Duration::from_secs(1000);
