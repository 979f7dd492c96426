//! A process that was started, seen from the one that did.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;

use crate::peer::{ANSWER, PEER};

/// Something that a member said; `None` when its output ends.
pub(crate) type Event = (u32, Option<String>);

#[derive(Debug)]
pub(crate) struct Member {
    process: Child,
    input: ChildStdin,
}

impl Member {
    pub(crate) fn start(addr: IpAddr, number: u32, events: Sender<Event>) -> Member {
        let program = std::env::current_exe().expect("this test binary");
        let mut process = Command::new(program)
            .args(["peer::peer_process", "--exact", "--nocapture", "--quiet"])
            .env(PEER, format!("{addr} {number}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { break };
                if let Some((_, answer)) = line.split_once(ANSWER) {
                    // There is no reader when the test has failed.
                    let _ = events.send((number, Some(answer.to_owned())));
                }
            }
            let _ = events.send((number, None));
        });
        Member { process, input }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn tell(&mut self, command: &str) {
        // If it died by itself, its output ends, and that is noticed.
        let _ = writeln!(self.input, "{command}");
    }

    pub(crate) fn wait(mut self) -> bool {
        let status = self.process.wait();
        status.expect("it is ours").success()
    }
}

impl Drop for Member {
    /// Ends it at once, if it still runs.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
