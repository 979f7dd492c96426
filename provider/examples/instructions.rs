//! One thread that is both ends of a connection, for a tool that counts instructions: `tests/instructions` runs it. Times are
//! `urxe bench`'s affair; instructions are the same on a busy machine.
//!
//! ```text
//! instructions send|write|bulk|read COUNT [MTU]
//! ```
//! `send` is a ping-pong of 8-byte SENDs, and COUNT the messages; `write` is COUNT WRITEs of 8 bytes, posted in lists of 32, one
//! completion a list; `bulk` is COUNT WRITEs of a megabyte, and `read` COUNT READs of one. `URXE_WIRE` says what they go through.

use urxe::{Access, ConnectOptions, Context, Cq, Mr, Mtu, Pd, Qp, RecvWr, SendWr, Wc};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Requests of a list, and lists that are under way.
const LIST: usize = 32;
const LISTS: usize = 8;

struct End {
    cq: Cq,
    qp: Qp,
    mr: Mr,
    _pd: Pd,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, mode, count, mtu @ ..] = &args[..] else {
        return Err("instructions send|write|bulk|read COUNT [MTU]".into());
    };
    let count: usize = count.parse()?;
    let mtu = match mtu.first().map_or("4096", String::as_str) {
        "1024" => Mtu::Mtu1024,
        "4096" => Mtu::Mtu4096,
        other => return Err(format!("no MTU {other} here").into()),
    };
    let len = match mode.as_str() {
        "bulk" | "read" => 1 << 20,
        _ => 8,
    };
    let (left, right) = (open("127.90.1.1", len)?, open("127.90.1.2", len)?);
    let options = ConnectOptions {
        path_mtu: Some(mtu),
        ..ConnectOptions::default()
    };
    left.qp.connect(&right.qp.endpoint(), &options)?;
    right.qp.connect(&left.qp.endpoint(), &options)?;
    match mode.as_str() {
        "send" => ping_pong(&left, &right, count),
        "write" => stream(&left, &right, mode, count.div_ceil(LIST), LIST),
        "bulk" | "read" => stream(&left, &right, mode, count, 1),
        other => Err(format!("there is no mode {other}").into()),
    }
}

fn open(addr: &str, len: usize) -> Result<End> {
    let context = Context::open(addr.parse()?)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(1024)?;
    let qp = pd
        .qp(&cq)
        .max_send_wr(1024)
        .max_recv_wr(64)
        .max_inline_data(64)
        .create()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = pd.reg_owned(vec![1; len], access)?;
    Ok(End {
        cq,
        qp,
        mr,
        _pd: pd,
    })
}

fn ping_pong(left: &End, right: &End, count: usize) -> Result<()> {
    for end in [left, right] {
        for _ in 0..32 {
            end.qp.post_recv(&RecvWr::new(0, &[end.mr.sge(..)]))?;
        }
    }
    let (mut from, mut to) = (left, right);
    for at in 0..count {
        let wr = SendWr::send_inline(1, &[7; 8]);
        // As `urxe bench` does it: now and then one is signaled.
        from.qp
            .post_send(&if at % 64 < 2 { wr.signaled() } else { wr })?;
        let mut wcs = [Wc::default(); 16];
        'waiting: loop {
            let found = poll(to, &mut wcs)?;
            for wc in &wcs[..found] {
                wc.ok()?;
                if wc.wr_id == 0 {
                    to.qp.post_recv(&RecvWr::new(0, &[to.mr.sge(..)]))?;
                    break 'waiting;
                }
            }
        }
        (from, to) = (to, from);
    }
    Ok(())
}

/// A tool that runs one thread at a time may have stopped the engine's own thread in the midst of its work.
fn poll(end: &End, wcs: &mut [Wc]) -> Result<usize> {
    let found = end.cq.poll(wcs)?;
    if found == 0 {
        std::thread::yield_now();
    }
    Ok(found)
}

fn stream(left: &End, right: &End, mode: &str, lists: usize, list: usize) -> Result<()> {
    let (sges, to, rkey) = ([left.mr.sge(..)], right.mr.addr(), right.mr.rkey());
    let wr = match mode {
        "write" => SendWr::rdma_write_inline(1, &[7; 8], to, rkey),
        "read" => SendWr::rdma_read(1, &sges, to, rkey),
        _ => SendWr::rdma_write(1, &sges, to, rkey),
    };
    let mut wcs = [Wc::default(); 16];
    let (mut posted, mut completed) = (0, 0);
    while completed < lists {
        if posted < lists && posted - completed < LISTS {
            let last = list - 1;
            let wrs = (0..list).map(|at| if at == last { wr.signaled() } else { wr });
            left.qp.post_send_iter(wrs)?;
            posted += 1;
        }
        poll(right, &mut wcs)?;
        let found = poll(left, &mut wcs)?;
        for wc in &wcs[..found] {
            wc.ok()?;
        }
        completed += found;
    }
    Ok(())
}
