//! How many connections a second are made and ended: a process that listens, and one that
//! connects. Both drive their QPs by events; QPs share one completion queue.
//!
//! `cm_rate listen ADDRESS:PORT`
//! `cm_rate connect ADDRESS:PORT FROM COUNT AT_ONCE [hold]`
//!
//! With `hold` all are made before the first is ended, and memory is told. What there was once all have ended rests for half
//! a second, and goes back to the system a second after.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use urxe::cm::{ConnParam, Event, EventChannel, EventKind, Id, PortSpace};
use urxe::{Cq, Error, Pd, Qp};

/// After so long all is gone that connections had.
const REST: Duration = Duration::from_secs(3);

/// One side's QPs.
struct Qps {
    pd: Pd,
    cq: Cq,
}

impl Qps {
    fn new(id: &Id) -> Result<Qps, Error> {
        let context = id.device().expect("it has an address");
        Ok(Qps {
            pd: context.alloc_pd()?,
            cq: context.create_cq(16)?,
        })
    }

    fn attach(&self, id: &Id) -> Result<Qp, Error> {
        let qp = self.pd.qp(&self.cq).max_send_wr(1).max_recv_wr(1);
        let qp = qp.max_sge(1).max_inline_data(0).create()?;
        id.attach_qp(&qp)?;
        Ok(qp)
    }
}

fn serve(at: SocketAddr) -> Result<(), Error> {
    let channel = EventChannel::new()?;
    let listener = Id::new(&channel, PortSpace::Tcp)?;
    listener.bind_addr(at)?;
    listener.listen(0)?;
    println!("listening at {at}");
    let mut qps = None;
    let mut guests: HashMap<u64, (Id, Qp)> = HashMap::new();
    let mut most = 0;
    loop {
        let is_over = guests.is_empty() && most > 0;
        let Some(event) = channel.wait(is_over.then_some(REST))? else {
            println!(
                "{most} at once; memory {} KiB {REST:?} later",
                resident_kib()
            );
            most = 0;
            continue;
        };
        let Event { kind, id, .. } = event;
        match kind {
            EventKind::ConnectRequest => {
                let qps = match &mut qps {
                    Some(qps) => qps,
                    None => qps.insert(Qps::new(&id)?),
                };
                let qp = qps.attach(&id)?;
                if id.accept(&ConnParam::default()).is_ok() {
                    guests.insert(id.number(), (id, qp));
                }
            }
            EventKind::Disconnected | EventKind::Rejected | EventKind::Unreachable => {
                most = most.max(guests.len());
                guests.remove(&id.number());
                if guests.is_empty() {
                    guests.shrink_to_fit();
                }
            }
            _ => {}
        }
    }
}

struct Client {
    channel: EventChannel,
    to: SocketAddr,
    from: IpAddr,
    qps: Option<Qps>,
    under_way: HashMap<u64, (Id, Qp)>,
    failed: usize,
}

impl Client {
    fn begin(&mut self) -> Result<(), Error> {
        let id = Id::new(&self.channel, PortSpace::Tcp)?;
        let from = Some(SocketAddr::new(self.from, 0));
        id.resolve_addr(from, self.to, Duration::ZERO)?;
        id.resolve_route(Duration::ZERO)?;
        let qps = match &mut self.qps {
            Some(qps) => qps,
            None => self.qps.insert(Qps::new(&id)?),
        };
        let qp = qps.attach(&id)?;
        id.connect(&ConnParam::default())?;
        self.under_way.insert(id.number(), (id, qp));
        Ok(())
    }

    fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        let qps = self.qps.as_ref().expect("there were connections");
        qps.pd.context().counters()
    }

    /// The next event that matters.
    fn next(&self) -> Result<Event, Error> {
        loop {
            let event = self.channel.wait(None)?.expect("no limit of time");
            match event.kind {
                EventKind::AddrResolved | EventKind::RouteResolved => {}
                _ => return Ok(event),
            }
        }
    }

    fn run(&mut self, count: usize, at_once: usize, hold: bool) -> Result<(), Error> {
        let (mut begun, mut done) = (0, 0);
        let mut made = Vec::new();
        while done < count {
            while begun < count && self.under_way.len() < at_once {
                self.begin()?;
                begun += 1;
            }
            let event = self.next()?;
            match event.kind {
                EventKind::Established if hold => {
                    made.extend(self.under_way.remove(&event.id.number()));
                    done += 1;
                }
                EventKind::Established => event.id.disconnect()?,
                EventKind::Disconnected => {
                    let was = self.under_way.remove(&event.id.number());
                    done += usize::from(was.is_some());
                }
                EventKind::Rejected | EventKind::Unreachable | EventKind::ConnectError => {
                    self.under_way.remove(&event.id.number());
                    self.failed += 1;
                    done += 1;
                }
                _ => {}
            }
        }
        if hold {
            println!("{} held; memory {} KiB", made.len(), resident_kib());
            for (id, _) in &made {
                id.disconnect()?;
            }
            let mut left = made.len();
            while left > 0 {
                left -= usize::from(self.next()?.kind == EventKind::Disconnected);
            }
        }
        Ok(())
    }
}

fn connect(to: SocketAddr, from: IpAddr, numbers: [usize; 2], hold: bool) -> Result<(), Error> {
    let mut client = Client {
        channel: EventChannel::new()?,
        to,
        from,
        qps: None,
        under_way: HashMap::new(),
        failed: 0,
    };
    let [count, at_once] = numbers;
    // Once before, so that what is kept for use again is there.
    client.run(at_once, at_once, false)?;
    let before = resident_kib();
    let start = Instant::now();
    client.run(count, at_once, hold)?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    let ended = resident_kib();
    let resting = Instant::now();
    while let Some(left) = REST.checked_sub(resting.elapsed()) {
        client.channel.wait(Some(left))?;
    }
    println!(
        "{count} connections, {} failed, {rate:.0} a second; memory {before} KiB before, {ended} KiB when they had ended, {} KiB {REST:?} later",
        client.failed,
        resident_kib()
    );
    for (name, value) in client.counters()? {
        if name.starts_with("heap_trim") {
            println!("{name} {value}");
        }
    }
    Ok(())
}

/// Memory of this process in use.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<usize>().ok());
    let addr = |at: usize| args.get(at).and_then(|text| text.parse().ok());
    let from: Option<IpAddr> = args.get(2).and_then(|text| text.parse().ok());
    match (
        args.first().map(String::as_str),
        addr(1),
        from,
        number(3),
        number(4),
    ) {
        (Some("listen"), Some(at), ..) => serve(at),
        (Some("connect"), Some(to), Some(from), Some(count), Some(at_once)) => {
            connect(to, from, [count, at_once], args.len() > 5)
        }
        _ => {
            eprintln!("usage: cm_rate listen ADDRESS:PORT");
            eprintln!("       cm_rate connect ADDRESS:PORT FROM COUNT AT_ONCE [hold]");
            std::process::exit(2)
        }
    }
}
