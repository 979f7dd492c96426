//! Server and client of a program that meet by the connection manager. Its listeners are not in the system's tables, so
//! the client tries until there is one.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::ends::{User, alone};
use crate::harness::{LIMIT, Ran, finish, port, program, run};

/// Runs both ends on one address. `ADDR` and `PORT` in their arguments stand for where they meet, `ADDR6` for IPv6's
/// loopback. Both have to end well; `None` if the program is missing. Returns what the server and the client printed.
pub(crate) fn cm_ends(
    user: User,
    package: &str,
    server: &str,
    client: &str,
) -> Option<(String, String)> {
    let _alone = alone();
    let port = port();
    let server_command = command(user, package, server, &port)?;
    let started = Instant::now();
    let running = start(server_command);
    let mut tried = None;
    // A server serves one client: when it has ended, the client that failed was the one.
    while !running.is_finished() && started.elapsed() < LIMIT {
        let ran = run(command(user, package, client, &port)?);
        // fio says so, and ends with 0 all the same.
        let is_refused = ran.text.contains("RDMA_CM_EVENT_REJECTED");
        let is_done = ran.code == Some(0) && !is_refused;
        tried = Some(ran);
        if is_done {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let server_ran = running.join().expect("it does not panic");
    let client_ran = tried.unwrap_or_else(|| panic!("{server} ended at once: {server_ran:?}"));
    for (told, ran) in [(server, &server_ran), (client, &client_ran)] {
        assert_eq!(
            ran.code,
            Some(0),
            "{told}: {}\n{server}: {}\n{client}: {}",
            ran.code.unwrap_or(-1),
            server_ran.text,
            client_ran.text
        );
    }
    Some((server_ran.text, client_ran.text))
}

/// A command line as this user; `None` if the program is missing.
pub(crate) fn command(user: User, package: &str, line: &str, port: &str) -> Option<Command> {
    let address = if line.contains("ADDR6") {
        IpAddr::from(Ipv6Addr::LOCALHOST)
    } else {
        user.address().into()
    };
    let line = line
        .replace("ADDR6", "ADDR")
        .replace("ADDR", &address.to_string())
        .replace("PORT", port);
    let mut words = line.split_whitespace();
    let mut command = program(words.next().expect("a program"), package, address)?;
    command.args(words);
    Some(user.run(command))
}

/// A program in the background; its output is read.
pub(crate) fn start(mut command: Command) -> JoinHandle<Ran> {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    thread::spawn(move || finish(child, 2 * LIMIT))
}

/// A program in the background, to wait for its lines. It and what it started end with this, at the latest.
pub(crate) struct Talking {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Talking {
    /// Its output has to be line by line (`stdbuf -oL`).
    pub(crate) fn start(mut command: Command) -> Talking {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()
            .expect("it starts");
        let said = Arc::<Mutex<String>>::default();
        let (out, heard) = (child.stdout.take().expect("a pipe"), said.clone());
        let reader = thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let mut said = heard.lock().expect("nobody panics with it");
                said.push_str(&line);
                said.push('\n');
            }
        });
        Talking {
            child,
            said,
            reader: Some(reader),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A number in KiB that the system knows of it (`VmHWM`, `RssAnon`, ...); `None` if it has ended.
    pub(crate) fn memory_kib(&self, name: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let mut rows = status.lines().filter_map(|line| line.split_once(':'));
        let (_, number) = rows.find(|(of, _)| *of == name)?;
        number.split_whitespace().next()?.parse().ok()
    }

    pub(crate) fn wait_for(&mut self, text: &str) {
        let start = Instant::now();
        while !self.said().contains(text) {
            let ended = self.child.try_wait().expect("it is ours");
            assert!(ended.is_none(), "it ended: {ended:?} {}", self.said());
            assert!(start.elapsed() < LIMIT, "no {text}: {}", self.said());
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// Stops it, as Ctrl-Z does. It is killed like any other.
    pub(crate) fn stop(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).expect("it is ours");
    }

    /// Has it go on, once it is stopped.
    pub(crate) fn go_on(&self) {
        let pid = Pid::from_child(&self.child);
        let stat = format!("/proc/{}/stat", self.id());
        let is_stopped = || {
            let stat = std::fs::read_to_string(&stat).expect("it is ours");
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" T"))
        };
        let start = Instant::now();
        while !is_stopped() {
            assert!(start.elapsed() < LIMIT, "it does not stop: {}", self.said());
            thread::yield_now();
        }
        kill_process(pid, Signal::CONT).expect("it is ours");
    }

    /// Asks it to end (SIGTERM).
    pub(crate) fn ask_to_end(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it is ours");
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Ran {
        let start = Instant::now();
        while self.child.try_wait().expect("it is ours").is_none() {
            if start.elapsed() > LIMIT {
                let text = self.said() + "\nended by the test: it took too long\n";
                return Ran { code: None, text };
            }
            thread::sleep(Duration::from_millis(10));
        }
        let code = self.child.wait().expect("it is ours").code();
        let reader = self.reader.take().expect("nobody else takes it");
        reader.join().expect("it does not panic");
        Ran {
            code,
            text: self.said(),
        }
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        // Until it was waited for, no other process has its number.
        if matches!(self.child.try_wait(), Ok(None)) {
            let id = self.child.id().cast_signed();
            let group = Pid::from_raw(id).expect("a child's id is not 0");
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
