//! QEMU moves a running machine's memory to another process: two of them without a guest. The memory of
//! each is a file, so that the test can fill one and read the other.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::ends::{User, alone};
use crate::harness::{LIMIT, finish, port, program};

const MIB: usize = 32;

/// A machine that has memory and nothing else. It ends with this, at the latest.
struct Machine {
    child: Option<Child>,
    memory: PathBuf,
    socket: PathBuf,
    control: BufReader<UnixStream>,
}

impl Machine {
    /// With its memory in a file of this name. `more`: where it gets its state from.
    fn start(mut command: Command, folder: &Path, name: &str, more: &[&str]) -> Machine {
        let memory = folder.join(name);
        let socket = folder.join(format!("{name}.qmp"));
        command
            .args(["-machine", "none,memory-backend=ram", "-accel", "tcg"])
            .args(["-nodefaults", "-display", "none", "-m"])
            .arg(format!("{MIB}M"))
            .arg("-object")
            .arg(format!(
                "memory-backend-file,id=ram,size={MIB}M,share=on,mem-path={}",
                memory.display()
            ))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", socket.display()))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => {
                    let ended = child.try_wait().expect("it is ours");
                    if ended.is_some() || start.elapsed() > LIMIT {
                        let _ = child.kill();
                        panic!("{name}: {error}: {}", finish(child, LIMIT).text);
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            }
        };
        stream.set_read_timeout(Some(LIMIT)).expect("not 0");
        let mut machine = Machine {
            child: Some(child),
            memory,
            socket,
            control: BufReader::new(stream),
        };
        // Its greeting comes first.
        machine.line();
        machine.ask("qmp_capabilities", &json!({}));
        machine
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        let read = self.control.read_line(&mut line);
        assert!(
            read.as_ref().is_ok_and(|len| *len > 0),
            "{read:?}: {}",
            self.end()
        );
        serde_json::from_str(&line).expect("QEMU answers in JSON")
    }

    /// A command of QEMU's, which has to succeed; events in between are not looked at.
    fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        let request = json!({"execute": command, "arguments": arguments});
        let mut stream = self.control.get_ref();
        writeln!(stream, "{request}").expect("it listens");
        loop {
            let mut answer = self.line();
            assert!(answer["error"].is_null(), "{command}: {answer}");
            if !answer["return"].is_null() {
                return answer["return"].take();
            }
        }
    }

    /// Until the state was handed over.
    fn wait_until_moved(&mut self) {
        let start = Instant::now();
        loop {
            let told = self.ask("query-migrate", &json!({}));
            match told["status"].as_str() {
                Some("completed") => return,
                Some("failed" | "cancelled") => panic!("{told}: {}", self.end()),
                _ => {}
            }
            assert!(start.elapsed() < LIMIT, "{told}: {}", self.end());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it; what it said.
    fn end(&mut self) -> String {
        let Some(mut child) = self.child.take() else {
            return String::new();
        };
        // It may have ended just now.
        let _ = child.kill();
        finish(child, LIMIT).text
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Nothing in it is like another part, and all pages are to be sent.
fn pattern() -> Vec<u8> {
    let words = (1..=(MIB << 20) as u64 / 8).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

fn moves(is_pinned: bool) {
    let name = "qemu-system-x86_64";
    let user = User::Myself;
    let start = || program(name, "qemu-system-x86", user.address());
    let (Some(from), Some(to)) = (start(), start()) else {
        return;
    };
    let _alone = alone();
    let folder = std::env::temp_dir().join(format!("urxe-qemu-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let sent = pattern();
    fs::write(folder.join("from"), &sent).expect("room for it");
    let uri = format!("rdma:{}:{}", user.address(), port());
    let mut from = Machine::start(from, &folder, "from", &[]);
    let mut to = Machine::start(to, &folder, "to", &["-incoming", "defer"]);
    let pin = json!({"capabilities": [{"capability": "rdma-pin-all", "state": is_pinned}]});
    for machine in [&mut to, &mut from] {
        machine.ask("migrate-set-capabilities", &pin);
    }
    to.ask("migrate-incoming", &json!({"uri": uri}));
    from.ask("migrate", &json!({"uri": uri}));
    from.wait_until_moved();
    to.wait_until_moved();
    let arrived = fs::read(&to.memory).expect("it is there");
    let is_same = arrived == sent;
    let said = (from.end(), to.end());
    fs::remove_dir_all(&folder).expect("it is ours");
    assert!(is_same, "pinned {is_pinned}: other memory: {said:?}");
}

/// Each part of the memory is registered when it is needed; and then all of it at first (`rdma-pin-all`).
#[test]
fn a_machine_moves_with_its_memory() {
    for is_pinned in [false, true] {
        moves(is_pinned);
    }
}
