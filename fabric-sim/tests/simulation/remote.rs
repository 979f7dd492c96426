//! Programs on a network at the other end of a socket, as those of other processes are: here they are threads.

#![allow(
    clippy::disallowed_methods,
    reason = "the threads take turns with the simulation"
)]

use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fabric_sim::HostId;
use fabric_sim::fault::Fault;
use fabric_sim::program::{Failure, Report, Simulation, ask, sleep, tell};
use urxe::network::remote::{CLOCK, Call, Guest, SLEEP, serve};
use urxe::network::{current, enter};
use urxe::{Access, ConnectOptions, Context, RecvWr, SendWr, WcOpcode, WcStatus};

const TELL: u32 = 100;
const ASK: u32 = 101;
const END: u64 = 9;
const ROUNDS: u64 = 20;

fn answer(call: &mut Call<'_>) -> i64 {
    let name = call.args[0].to_string();
    match call.number {
        SLEEP => sleep(Duration::from_nanos(call.args[0])),
        TELL => tell(&name, String::from_utf8_lossy(call.bytes)),
        ASK => call.out = ask(&name).into_bytes(),
        _ => return -1,
    }
    call.out.len() as i64
}

/// A program of the host, on a thread of its own.
fn on_thread(sim: &mut Simulation, host: HostId, program: impl FnOnce(&Guest) + Send + 'static) {
    sim.host(host, move || {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let thread = thread::spawn(move || {
            let guest = Guest::over(theirs);
            let _here = enter(guest.clone());
            program(&guest);
        });
        let network = current().expect("the host's");
        serve(ours, &network, &mut answer).expect("it keeps to the protocol");
        thread.join().expect("it does not panic");
    });
}

fn ping_pong(guest: &Guest, mine: u64, is_first: bool) {
    let address = format!("10.0.0.{}", mine + 1).parse().expect("an address");
    let context = Context::open(address).expect("opens");
    let (pd, cq) = (context.alloc_pd().expect("a PD"), context.create_cq(16));
    let cq = cq.expect("a CQ");
    let qp = pd.qp(&cq).create().expect("a QP");
    let memory = pd.reg_owned(vec![mine as u8; 9000], Access::LOCAL_WRITE);
    let memory = memory.expect("registers");
    guest.call(
        TELL,
        [mine, 0, 0],
        qp.endpoint().to_string().as_bytes(),
        &mut [],
    );
    let mut word = [0; 512];
    let len = guest.call(ASK, [1 - mine, 0, 0], &[], &mut word);
    let peer = String::from_utf8_lossy(&word[..len as usize]).parse();
    let peer = peer.expect("the other's endpoint");
    qp.init(Access::NONE).expect("goes to INIT");
    qp.post_recv(&RecvWr::new(1, &[memory.sge(..4500)]))
        .expect("posts");
    qp.connect(&peer, &ConnectOptions::default())
        .expect("connects");
    // The other has its receive by then.
    assert_eq!(guest.call(SLEEP, [1_000_000, 0, 0], &[], &mut []), 0);
    let (send, receive) = (
        || {
            qp.post_send(&SendWr::send(2, &[memory.sge(4500..)]).signaled())
                .expect("posts")
        },
        || {
            qp.post_recv(&RecvWr::new(1, &[memory.sge(..4500)]))
                .expect("posts")
        },
    );
    let ended = Cell::new(0);
    let wait = || {
        let wc = cq.poll_one().expect("polls");
        assert_eq!(wc.status, WcStatus::Success);
        ended.set(ended.get() + 1);
        wc.opcode
    };
    for _ in 0..ROUNDS {
        if is_first {
            send();
        }
        while wait() != WcOpcode::Recv {}
        receive();
        if !is_first {
            send();
        }
    }
    while ended.get() < 2 * ROUNDS {
        wait();
    }
    if is_first {
        // If the last acknowledgement is lost, the other asks for it once more.
        guest.call(ASK, [END, 0, 0], &[], &mut word);
    } else {
        guest.call(TELL, [END, 0, 0], b"all is here", &mut []);
    }
    assert!(guest.call(CLOCK, [0; 3], &[], &mut []) != 0);
}

fn run(seed: u64) -> Result<Report, Failure> {
    let mut sim = Simulation::new(seed);
    sim.fault(Fault::loss(0.05));
    on_thread(&mut sim, HostId(0), |guest| ping_pong(guest, 0, true));
    on_thread(&mut sim, HostId(1), |guest| ping_pong(guest, 1, false));
    sim.run()
}

#[test]
fn a_program_at_the_other_end_of_a_socket_has_one_run_a_seed() {
    let mut traces = Vec::new();
    let mut lost = 0;
    for seed in 1..=10 {
        let reports = [run(seed), run(seed)].map(|run| run.unwrap_or_else(|it| panic!("{it}")));
        let [first, second] = &reports;
        assert_eq!(first.trace(), second.trace(), "seed {seed}");
        assert_eq!(first.ended_at(), second.ended_at());
        lost += first.drops().total();
        assert_eq!(first.counter("sent_messages"), 2 * ROUNDS, "seed {seed}");
        traces.push(first.trace());
    }
    assert!(lost > 0, "faults reach such programs");
    traces.sort_unstable();
    traces.dedup();
    assert!(traces.len() > 5, "{}", traces.len());
}

#[test]
fn an_end_that_keeps_to_nothing_is_an_error() {
    let mut sim = Simulation::new(1);
    for (host, bytes) in [(HostId(0), &b""[..]), (HostId(1), b"\x09\0\0\0 nonsense")] {
        sim.host(host, move || {
            let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
            std::io::Write::write_all(&mut theirs, bytes).expect("it goes out");
            drop(theirs);
            let network: Arc<_> = current().expect("the host's");
            serve(ours, &network, &mut answer).expect_err("that is no program");
        });
    }
    sim.run().expect("both have ended");
}
