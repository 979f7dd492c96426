//! Half a round trip and message rates, to look at with a profiler. `urxe bench` is the
//! tool for comparisons; this is one process that does one thing.
//!
//! ```text
//! latency server|client pingpong|event|write|rate SIZE COUNT [CPU]
//! ```
//! The server is at 127.90.0.1, the client at 127.90.0.2; they find each other over TCP
//! port 18600.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Instant;

use urxe::{
    Access, CompChannel, ConnectOptions, Context, Cq, Endpoint, Mr, Qp, RecvWr, Rkey, SendWr, Wc,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct End {
    channel: CompChannel,
    cq: Cq,
    qp: Qp,
    mr: Mr,
    remote_addr: u64,
    rkey: Rkey,
    control: BufReader<TcpStream>,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, role, mode, size, count, ..] = &args[..] else {
        return Err("latency server|client pingpong|event|write|rate SIZE COUNT".into());
    };
    let (size, count): (usize, usize) = (size.parse()?, count.parse()?);
    let server = role == "server";
    let mut end = open(server, size)?;
    match mode.as_str() {
        "pingpong" => pingpong(&mut end, server, size, count, false),
        "event" => pingpong(&mut end, server, size, count, true),
        "write" => write(&mut end, server, size, count),
        other => Err(format!("there is no mode {other}").into()),
    }
}

fn open(server: bool, size: usize) -> Result<End> {
    let addr: IpAddr = if server { "127.90.0.1" } else { "127.90.0.2" }.parse()?;
    let stream = if server {
        TcpListener::bind("127.0.0.1:18600")?.accept()?.0
    } else {
        (0..100)
            .find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                TcpStream::connect("127.0.0.1:18600").ok()
            })
            .ok_or("there is no server")?
    };
    let mut builder = Context::builder(addr);
    if let Ok(bytes) = std::env::var("WINDOW") {
        builder = builder.window_bytes(bytes.parse()?);
    }
    let context = builder.open()?;
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let cq = context.create_cq_with_channel(4096, &channel)?;
    let qp = pd.qp(&cq).max_send_wr(1024).max_recv_wr(1024).create()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = pd.reg_owned(vec![0; size.max(8) * 2], access)?;
    writeln!(&stream, "{} {} {}", qp.endpoint(), mr.addr(), mr.rkey().0)?;
    let mut control = BufReader::new(stream);
    let mut line = String::new();
    control.read_line(&mut line)?;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let remote: Endpoint = fields[0].parse()?;
    qp.connect(&remote, &ConnectOptions::default())?;
    let (remote_addr, rkey) = (fields[1].parse()?, Rkey(fields[2].parse()?));
    let mut end = End {
        channel,
        cq,
        qp,
        mr,
        remote_addr,
        rkey,
        control,
    };
    barrier(&mut end)?;
    Ok(end)
}

fn barrier(end: &mut End) -> Result<()> {
    writeln!(end.control.get_ref(), "ready")?;
    end.control.read_line(&mut String::new())?;
    Ok(())
}

fn pingpong(end: &mut End, server: bool, size: usize, count: usize, event: bool) -> Result<()> {
    let recv = [end.mr.sge(..size)];
    let send = [end.mr.sge(size..2 * size)];
    for _ in 0..16 {
        end.qp.post_recv(&RecvWr::new(0, &recv))?;
    }
    end.cq.req_notify(false)?;
    barrier(end)?;
    let mut times = Vec::with_capacity(count);
    let mut wcs = [Wc::default(); 16];
    for _ in 0..count {
        let start = Instant::now();
        if !server {
            end.qp.post_send(&SendWr::send(1, &send).signaled())?;
        }
        let mut received = false;
        while !received {
            let n = end.cq.poll(&mut wcs)?;
            for wc in &wcs[..n] {
                received |= wc.ok()?.wr_id == 0;
            }
            if n == 0 && event {
                end.channel.wait()?;
                end.cq.req_notify(false)?;
            }
        }
        end.qp.post_recv(&RecvWr::new(0, &recv))?;
        if server {
            end.qp.post_send(&SendWr::send(1, &send).signaled())?;
        }
        times.push(start.elapsed());
    }
    barrier(end)?;
    if !server {
        times.sort();
        let us = |q: f64| times[(q * (times.len() - 1) as f64) as usize].as_secs_f64() * 5e5;
        println!(
            "half round trip us: p50 {:.2} p99 {:.2} max {:.2}",
            us(0.5),
            us(0.99),
            us(1.0)
        );
    }
    show(end)
}

fn write(end: &mut End, server: bool, size: usize, count: usize) -> Result<()> {
    const DEPTH: usize = 128;
    const LIST: usize = 64;
    barrier(end)?;
    if !server {
        let sges = [end.mr.sge(..size)];
        let plain = SendWr::rdma_write(0, &sges, end.remote_addr, end.rkey);
        let list = if size > 4096 { 1 } else { LIST };
        let mut wrs = vec![plain; list];
        wrs[list - 1] = plain.signaled();
        let mut wcs = [Wc::default(); 16];
        let (mut posted, mut done) = (0, 0);
        let start = Instant::now();
        while done < count {
            while posted < count && posted - done + list <= DEPTH {
                end.qp.post_send_list(&wrs)?;
                posted += list;
            }
            let n = end.cq.poll(&mut wcs)?;
            for wc in &wcs[..n] {
                wc.ok()?;
                done += list;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{:.2} Gbit/s, {:.3} M messages/s",
            (done * size) as f64 * 8e-9 / seconds,
            done as f64 * 1e-6 / seconds
        );
    }
    barrier(end)?;
    show(end)
}

fn show(end: &End) -> Result<()> {
    if std::env::var_os("COUNTERS").is_some() {
        for (name, value) in end.qp.pd().context().counters()? {
            if value != 0 {
                eprintln!("{name:>24} {value}");
            }
        }
    }
    Ok(())
}
