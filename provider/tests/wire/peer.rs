//! A process at the other end, which is told by lines on its input what to do, and answers by lines on its output:
//!
//! | told | answer |
//! |---|---|
//! | `connect ENDPOINT` | `ENDPOINT` of a new QP, which sends back whatever it is sent |
//! | `memory` | `ADDRESS RKEY` of 64 KiB, for WRITEs |
//! | `count COUNTER` | its value |
//! | `limit` | nothing more can be opened |
//! | `exec` | none: it becomes another program |
//! | the end of its input | none: it closes everything and ends |

use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdin};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use urxe::{
    CompChannel, ConnectOptions, Context, Cq, Endpoint, Mr, Pd, Qp, QpState, RecvWr, SendWr, Wc,
    WcOpcode, WcStatus,
};

use crate::common::{ALL, End, PATIENCE, address, bytes, wait_until};

/// Tells this test binary, started again, that it is such a process, at this address.
const PEER: &str = "URXE_TEST_WIRE_PEER_AT";
/// The test that it runs.
const ROLE: [&str; 4] = [
    "wire::peer::peer_process",
    "--exact",
    "--nocapture",
    "--quiet",
];
/// What its answers begin with: the test harness prints, too.
const ANSWER: &str = "peer: ";

/// Receives of each QP, and bytes of each.
const DEPTH: usize = 16;
const LEN: usize = 64;

pub(crate) struct Peer {
    process: Child,
    /// `None` when it was told that no more comes.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn start() -> Peer {
        Peer::start_by(&mut Peer::command(), address())
    }

    /// The command that it is started with, if nothing is to be said in addition.
    pub(crate) fn command() -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this test binary"));
        command.args(ROLE).env_remove("URXE_WIRE");
        command
    }

    pub(crate) fn start_by(command: &mut Command, addr: IpAddr) -> Peer {
        command.env(PEER, addr.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let input = process.stdin.take();
        Peer {
            process,
            input,
            output,
        }
    }

    /// The next line that is meant for us; `None` if it ended.
    fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).expect("a pipe") == 0 {
                return None;
            }
            if let Some((_, said)) = line.split_once(ANSWER) {
                return Some(said.trim().to_owned());
            }
        }
    }

    fn tell(&mut self, order: &str) {
        let input = self.input.as_mut().expect("it listens");
        writeln!(input, "{order}").expect("it listens");
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        let line = self.line();
        line.unwrap_or_else(|| panic!("it ended before it answered {order}"))
    }

    /// Connects a QP of ours with a new one of the peer's.
    #[track_caller]
    pub(crate) fn connect(&mut self, qp: &Qp, options: &ConnectOptions) {
        let endpoint: Endpoint = self
            .ask(&format!("connect {}", qp.endpoint()))
            .parse()
            .expect("an endpoint");
        qp.connect(&endpoint, options).expect("connects");
    }

    pub(crate) fn count(&mut self, counter: &str) -> u64 {
        let value = self.ask(&format!("count {counter}"));
        value.parse().expect("a number")
    }

    /// Address and key of its memory.
    pub(crate) fn memory(&mut self) -> (u64, urxe::Rkey) {
        let said = self.ask("memory");
        let (addr, rkey) = said.split_once(' ').expect("two words");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        (number(addr), urxe::Rkey(number(rkey) as u32))
    }

    pub(crate) fn exec(&mut self) {
        self.tell("exec");
        assert_eq!(self.line(), None, "the other program is silent");
        // Its output is another before its threads are gone.
        let name = format!("/proc/{}/comm", self.id());
        wait_until("it is the other program", || {
            std::fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep")
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).expect("it is ours");
    }

    /// Stops it, and returns when none of its threads runs any more.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.id());
        wait_until("all threads are stopped", || {
            let tasks = std::fs::read_dir(&tasks).expect("it lives").flatten();
            let stats = tasks.map(|task| std::fs::read_to_string(task.path().join("stat")));
            // The state is behind the name, which is in parentheses.
            stats.flatten().all(|stat| stat.contains(") T "))
        });
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns when it is gone: until then one of its threads might answer.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.process.wait().expect("it is ours");
    }

    /// Has it end by itself, in good order.
    pub(crate) fn end(mut self) {
        self.input = None;
        let status = self.process.wait().expect("it is ours");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a number to a peer, which sends it back.
#[track_caller]
pub(crate) fn ping(end: &End, number: u64) {
    ping_on(end, &end.qp, number);
}

#[track_caller]
pub(crate) fn ping_on(end: &End, qp: &Qp, number: u64) {
    let (out, back) = (end.memory(8), end.memory(LEN));
    out.write(0, &number.to_le_bytes());
    let part = [back.sge(..)];
    let recv = RecvWr::new(1, &part);
    qp.post_recv(&recv).expect("room");
    let sges = [out.sge(..)];
    let send = SendWr::send(2, &sges).signaled();
    qp.post_send(&send).expect("room");
    let mut got = [end.succeed().wr_id, end.succeed().wr_id];
    got.sort_unstable();
    assert_eq!(got, [1, 2]);
    assert_eq!(bytes(&back, 8), number.to_le_bytes());
}

/// Not a test by itself.
#[test]
fn peer_process() {
    let Ok(addr) = std::env::var(PEER) else {
        println!("skipped: this is what other tests start");
        return;
    };
    let context = match Context::open(addr.parse().expect("an address")) {
        Ok(context) => context,
        Err(error) => return println!("\n{ANSWER}{error}"),
    };
    Server::new(context).serve();
}

struct Server {
    context: Context,
    pd: Pd,
    cq: Cq,
    /// By number, which the receives bear.
    ends: Arc<Mutex<Vec<Echo>>>,
    memory: Mr,
    /// Sends back, and ends with the first receive that is flushed.
    thread: JoinHandle<()>,
    /// What uses all descriptors up.
    ballast: Vec<File>,
}

struct Echo {
    qp: Qp,
    buffer: Mr,
}

impl Server {
    fn new(context: Context) -> Server {
        let pd = context.alloc_pd().expect("a PD");
        let channel = context.create_comp_channel().expect("a channel");
        let cq = context.create_cq_with_channel(1024, &channel);
        let cq = cq.expect("a CQ");
        let ends = Arc::<Mutex<Vec<Echo>>>::default();
        let (theirs, queue) = (ends.clone(), cq.clone());
        let thread = thread::spawn(move || send_back(&theirs, &queue, &channel));
        let memory = pd.reg_owned(vec![0; 64 << 10], ALL).expect("memory");
        Server {
            context,
            pd,
            cq,
            ends,
            memory,
            thread,
            ballast: Vec::new(),
        }
    }

    fn serve(mut self) {
        for line in stdin().lines() {
            let line = line.expect("a pipe");
            let (order, rest) = line.split_once(' ').unwrap_or((&line, ""));
            let answer = match order {
                "connect" => self.connect(rest),
                "memory" => format!("{} {}", self.memory.addr(), self.memory.rkey().0),
                "count" => {
                    let counters = self.context.counters().expect("counters");
                    let found = counters.iter().find(|(name, _)| *name == rest);
                    found.expect("there is such a counter").1.to_string()
                }
                "limit" => self.limit(),
                "exec" => {
                    let error = Command::new("sleep").arg("60").stdout(Stdio::null()).exec();
                    panic!("{error}");
                }
                _ => panic!("{line}?"),
            };
            println!("\n{ANSWER}{answer}");
        }
        // Everything is closed in good order, also what the thread has.
        let ends = self.ends.lock().expect("no panic");
        let failed = ends.iter().map(|end| end.qp.modify_state(QpState::Err));
        let count = failed.map(|done| done.expect("from any state")).count();
        drop(ends);
        if count > 0 {
            self.thread.join().expect("no panic");
        }
    }

    fn connect(&mut self, endpoint: &str) -> String {
        let endpoint: Endpoint = endpoint.parse().expect("an endpoint");
        let qp = self.pd.qp(&self.cq).create().expect("a QP");
        let buffer = self.pd.reg_owned(vec![0; LEN], ALL).expect("memory");
        let options = ConnectOptions::default();
        qp.connect(&endpoint, &options).expect("connects");
        let mut ends = self.ends.lock().expect("no panic");
        let number = ends.len() as u64;
        for _ in 0..DEPTH {
            let part = [buffer.sge(..)];
            let recv = RecvWr::new(number, &part);
            qp.post_recv(&recv).expect("room");
        }
        let ours = qp.endpoint().to_string();
        ends.push(Echo { qp, buffer });
        ours
    }

    /// Uses all descriptors up that the process may have.
    fn limit(&mut self) -> String {
        let limits = getrlimit(Resource::Nofile);
        let few = Rlimit {
            current: Some(256),
            ..limits
        };
        setrlimit(Resource::Nofile, few).expect("less is always possible");
        while let Ok(file) = File::open("/dev/null") {
            self.ballast.push(file);
        }
        format!("{} descriptors were left", self.ballast.len())
    }
}

/// Sends everything back where it came from.
fn send_back(ends: &Mutex<Vec<Echo>>, cq: &Cq, channel: &CompChannel) {
    let mut wcs = [Wc::default(); 8];
    loop {
        cq.req_notify(false).expect("a channel");
        let count = cq.poll(&mut wcs).expect("polls");
        if count == 0 {
            channel.wait_timeout(PATIENCE).expect("waits");
        }
        if wcs[..count]
            .iter()
            .any(|wc| wc.status == WcStatus::WrFlushErr)
        {
            return;
        }
        let ends = ends.lock().expect("no panic");
        for wc in wcs[..count].iter().filter(|wc| wc.is_success()) {
            if wc.opcode == WcOpcode::Recv
                && let Some(end) = ends.get(wc.wr_id as usize)
            {
                let sges = [end.buffer.sge(..wc.byte_len as usize)];
                let part = [end.buffer.sge(..)];
                let recv = RecvWr::new(wc.wr_id, &part);
                end.qp
                    .post_send(&SendWr::send(0, &sges).signaled())
                    .expect("room");
                end.qp.post_recv(&recv).expect("room");
            }
        }
    }
}
