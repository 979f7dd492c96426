//! What thousands of connections took goes back to the system when they have ended. In a process of its own:
//! what other tests allocate would be measured too.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, address, alone};
use urxe::cm::{ConnParam, Event, EventChannel, EventKind, Id, Manager, Opener, PortSpace};
use urxe::{Context, Cq, Error, Pd, Qp};

/// Connections at once.
const MANY: usize = 3000;
/// Connections that are being made at once: fewer than the backlog of a listener.
const AT_ONCE: usize = 50;
/// What may be left, of some 16 MiB. It is some 2: the freed pieces that the C library keeps for each thread lie about, and each
/// holds a page.
const MARGIN_KIB: u64 = 4096;
/// Ending, timewait and a second of silence take some two seconds on an idle machine.
const BACK_WITHIN: Duration = Duration::from_secs(120);

/// One context, whatever is asked for.
struct Only(Context);

impl Opener for Only {
    fn context_of(&self, _: std::net::IpAddr) -> Result<Context, Error> {
        Ok(self.0.clone())
    }

    fn contexts(&self) -> Result<Vec<Context>, Error> {
        Ok(vec![self.0.clone()])
    }
}

/// One side, with the connections that it has.
struct Side {
    context: Context,
    pd: Pd,
    cq: Cq,
    channel: EventChannel,
    held: HashMap<u64, (Id, Qp)>,
}

impl Side {
    fn new() -> Side {
        let context = Context::open(address()).expect("the address is free");
        let manager = Manager::new(Arc::new(Only(context.clone())));
        Side {
            pd: context.alloc_pd().expect("a PD"),
            cq: context.create_cq(16).expect("a CQ"),
            channel: EventChannel::with_manager(&manager).expect("a channel"),
            context,
            held: HashMap::new(),
        }
    }

    fn addr(&self) -> SocketAddr {
        SocketAddr::new(self.context.address(), 0)
    }

    fn id(&self) -> Id {
        Id::new(&self.channel, PortSpace::Tcp).expect("an identifier")
    }

    /// Gives the identifier a QP, and keeps both.
    fn attach(&mut self, id: &Id) {
        let qp = self.pd.qp(&self.cq).max_send_wr(1).max_recv_wr(1);
        let qp = qp.max_sge(1).max_inline_data(0).create().expect("a QP");
        id.attach_qp(&qp).expect("it is in RESET");
        self.held.insert(id.number(), (id.clone(), qp));
    }

    /// What happens next.
    fn next(&self) -> Event {
        let event = self.channel.wait(Some(PATIENCE)).expect("waits");
        event.expect("an event within the time of patience")
    }

    fn trims(&self) -> u64 {
        let counters = self.context.counters().expect("works");
        let trims = counters.iter().find(|(name, _)| *name == "heap_trims");
        trims.expect("there is such a counter").1
    }
}

/// Accepts `count` and holds them until they are ended from the other side.
fn serve(side: &mut Side, count: usize) {
    let mut ended = 0;
    while ended < count {
        let Event { kind, id, .. } = side.next();
        match kind {
            EventKind::ConnectRequest => {
                side.attach(&id);
                id.accept(&ConnParam::default()).expect("it waits");
            }
            EventKind::Disconnected => {
                side.held.remove(&id.number()).expect("it was held");
                ended += 1;
            }
            EventKind::Established | EventKind::TimewaitExit => {}
            kind => panic!("{kind:?}"),
        }
    }
    side.held.shrink_to_fit();
}

/// Makes `count`, has a look while all are there, and ends them.
fn connect<R>(side: &mut Side, to: SocketAddr, count: usize, look: impl FnOnce() -> R) -> R {
    let (mut begun, mut made) = (0, 0);
    while made < count {
        while begun < count && begun - made < AT_ONCE {
            let id = side.id();
            let resolved = id.resolve_addr(Some(side.addr()), to, PATIENCE);
            resolved.expect("it is on this host");
            id.resolve_route(PATIENCE).expect("resolves");
            side.attach(&id);
            id.connect(&ConnParam::default()).expect("asks");
            begun += 1;
        }
        match side.next().kind {
            EventKind::Established => made += 1,
            EventKind::AddrResolved | EventKind::RouteResolved => {}
            kind => panic!("{kind:?}"),
        }
    }
    let seen = look();
    for (id, _) in side.held.values() {
        id.disconnect().expect("it is there");
    }
    while !side.held.is_empty() {
        let Event { kind, id, .. } = side.next();
        match kind {
            EventKind::Disconnected => drop(side.held.remove(&id.number()).expect("once")),
            EventKind::TimewaitExit => {}
            kind => panic!("{kind:?}"),
        }
    }
    side.held.shrink_to_fit();
    seen
}

/// Makes `count` connections from one to the other and ends them; returns the memory while all are there.
fn round(client: &mut Side, server: &mut Side, count: usize) -> u64 {
    let listener = server.id();
    listener.bind_addr(server.addr()).expect("binds");
    listener.listen(0).expect("listens");
    let to = listener.local_addr().expect("bound");
    std::thread::scope(|scope| {
        scope.spawn(|| serve(server, count));
        connect(client, to, count, resident_kib)
    })
}

/// Memory of this process that is resident and not a file's.
fn resident_kib() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("on Linux");
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Anonymous:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

#[test]
fn memory_of_thousands_of_connections_goes_back_when_they_end() {
    alone(
        "memory_goes_back::memory_of_thousands_of_connections_goes_back_when_they_end",
        || {
            if !cfg!(target_env = "gnu") {
                println!("skipped: only glibc is told to give memory back");
                return;
            }
            let (mut client, mut server) = (Side::new(), Side::new());
            // What is made once and stays.
            round(&mut client, &mut server, AT_ONCE);
            let before = resident_kib();
            for time in 1..=2 {
                let peak = round(&mut client, &mut server, MANY);
                let ended = Instant::now();
                let back = loop {
                    let now = resident_kib();
                    if now <= before + MARGIN_KIB {
                        break now;
                    }
                    assert!(
                        ended.elapsed() < BACK_WITHIN,
                        "time {time}: {before} KiB before, {peak} with {MANY} connections, {now} after {BACK_WITHIN:?}"
                    );
                    std::thread::sleep(Duration::from_millis(50));
                };
                println!(
                    "{before} KiB before, {peak} with {MANY} connections, {back} after {:?}",
                    ended.elapsed()
                );
                assert!(
                    peak > before + 3 * MARGIN_KIB,
                    "{before}, {peak}: nothing to give back"
                );
                for side in [&client, &server] {
                    let trims = side.trims();
                    assert!(
                        trims <= 2 * time,
                        "{trims} of one context after {time} peaks"
                    );
                }
            }
        },
    );
}
