//! Programs of the distribution, unchanged: on one side they run on urxe's drop-in library, on the other on the kernel.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{Lab, PATIENCE, Requester};
use crate::matrix::Row;
use crate::side::Result;

pub(crate) const ROWS: &[Row] = &[
    row("ibv_rc_pingpong", |lab| {
        // Polling, with events; small messages and such of several packets; the receiver checks the bytes.
        let flags = ["-c -n 100", "-c -n 100 -e", "-c -n 50 -s 20000 -m 1024"];
        pingpong(lab, "ibv_rc_pingpong", &flags)
    }),
    row("ibv_uc_pingpong", |lab| {
        let flags = ["-c -n 100", "-c -n 100 -e"];
        pingpong(lab, "ibv_uc_pingpong", &flags)
    }),
    row("ibv_ud_pingpong", |lab| {
        let flags = ["-c -n 100 -s 1024", "-c -n 100 -s 1024 -e"];
        pingpong(lab, "ibv_ud_pingpong", &flags)
    }),
    row("ibv_srq_pingpong", |lab| {
        let flags = ["-c -n 100 -q 4", "-c -n 100 -q 4 -e"];
        pingpong(lab, "ibv_srq_pingpong", &flags)
    }),
    row("ib_send_bw", |lab| {
        let flags = ["-n 100 -s 4096", "-n 50 -q 4", "-n 50 -b", "-n 50 -e"];
        perftest(lab, "ib_send_bw", &flags)
    }),
    row("ib_write_bw", |lab| {
        perftest(lab, "ib_write_bw", &["-n 50", "-n 50 -q 4"])
    }),
    row("ib_read_bw", |lab| perftest(lab, "ib_read_bw", &["-n 50"])),
    row("ib_atomic_bw", |lab| {
        let flags = ["-n 50 -A FETCH_AND_ADD", "-n 50 -A CMP_AND_SWAP"];
        perftest(lab, "ib_atomic_bw", &flags)
    }),
    row("ib_send_lat", |lab| {
        perftest(lab, "ib_send_lat", &["-n 50", "-n 50 -c UD"])
    }),
    row("ib_write_lat", |lab| {
        perftest(lab, "ib_write_lat", &["-n 50"])
    }),
    row("ib_read_lat", |lab| {
        perftest(lab, "ib_read_lat", &["-n 50"])
    }),
    row("ib_atomic_lat", |lab| {
        perftest(lab, "ib_atomic_lat", &["-n 50"])
    }),
    row("urxe where rxe is", beside_rxe),
];

/// Seconds that a program may take in an emulated guest on a busy machine. The agent's answer is awaited for longer.
pub(crate) const PATIENCE_S: u32 = 100;

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "prog",
        operation,
        run,
    }
}

/// A program of ibverbs-utils, once for each set of flags.
fn pingpong(lab: &mut Lab, program: &str, flags: &[&str]) -> Result<()> {
    lab.close()?;
    for flags in flags {
        exchange(lab, program, "-g", flags).map_err(|e| format!("{program} {flags}: {e}"))?;
        lab.cases += 1;
    }
    Ok(())
}

/// The same for perftest, which names the GID otherwise. The clocks of an emulated processor are not even, which `-F`
/// has it overlook: what is measured here is of no interest.
fn perftest(lab: &mut Lab, program: &str, flags: &[&str]) -> Result<()> {
    lab.close()?;
    for flags in flags {
        let flags = format!("-F {flags}");
        exchange(lab, program, "-x", &flags).map_err(|e| format!("{program} {flags}: {e}"))?;
        lab.cases += 1;
    }
    Ok(())
}

/// In the guest, urxe's library cannot have the port: rxe has it. The program that tries is told so.
fn beside_rxe(lab: &mut Lab) -> Result<()> {
    if lab.requester == Requester::Urxe {
        return Ok(());
    }
    let addr = lab.hosts.1;
    let said = lab.guest(&format!(
        "LD_LIBRARY_PATH=/root/urxe-lib URXE_VERBOSE=1 URXE_DEVICES={addr} ibv_devinfo -d urxe0 2>&1 && \
         echo it has the port; true"
    ))?;
    let is_clear = ["port 4791", "rdma_rxe", &addr.to_string()]
        .iter()
        .all(|word| said.contains(word));
    if !is_clear || said.contains("it has the port") {
        return Err(format!("ibv_devinfo on urxe says {said:?}"));
    }
    lab.cases += 1;
    Ok(())
}

/// Runs the server at the responder and the client at the requester; both must end well.
fn exchange(lab: &mut Lab, program: &str, gid_flag: &str, flags: &str) -> Result<()> {
    let (urxe, rxe) = lab.hosts;
    // The two find each other over TCP and IPv4, whatever their packets take.
    let (urxe_v4, rxe_v4) = lab.meeting;
    let gid = if rxe.is_ipv4() { 1 } else { 2 };
    let there = format!("{program} -d rxe0 {gid_flag} {gid} {flags}");
    let flags = &format!("{gid_flag} 0 {flags}");
    if lab.requester == Requester::Urxe {
        lab.guest(&format!("{} {LISTENS}", background(&there)))?;
        let client = here(program, flags, urxe, Some(rxe_v4)).and_then(finish);
        finish_background(lab, client)
    } else {
        let server = here(program, flags, urxe, None)?;
        let client =
            wait_until_listening().and_then(|()| in_guest(lab, &format!("{there} {urxe_v4}")));
        let server = finish(server);
        client?;
        server
    }
}

/// A command line that starts a program in the guest and does not wait for it.
pub(crate) fn background(line: &str) -> String {
    format!(
        "rm -f /tmp/program.rc; (timeout {PATIENCE_S} {line} >/tmp/program.out 2>&1 </dev/null & echo $! >/tmp/program.pid; \
         wait $!; echo $? >/tmp/program.rc) >/dev/null 2>&1 &\n"
    )
}

/// Waits for its end, which must be a good one. If the other end failed, it is not waited for.
pub(crate) fn finish_background(lab: &mut Lab, other: Result<()>) -> Result<()> {
    if other.is_err() {
        lab.guest("kill $(cat /tmp/program.pid); true")?;
    }
    let said = lab.guest(&format!(
        "for i in $(seq 900); do [ -e /tmp/program.rc ] && break; sleep 0.1; done; \
         tail -c {LAST_WORDS} /tmp/program.out; [ \"$(cat /tmp/program.rc)\" = 0 ]",
    ));
    match (other, said) {
        (Ok(()), said) => said.map(drop),
        (Err(error), Ok(said) | Err(said)) => Err(format!("{error}; on the kernel: {said}")),
    }
}

/// Runs a program in the guest.
pub(crate) fn in_guest(lab: &mut Lab, line: &str) -> Result<String> {
    lab.guest(&format!(
        "timeout {PATIENCE_S} {line} >/tmp/client.out 2>&1; rc=$?; tail -c {LAST_WORDS} /tmp/client.out; exit $rc"
    ))
}

/// Until the guest's program listens on TCP port 18515 (0x4853).
const LISTENS: &str = "for i in $(seq 300); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.1; done; exit 1";

fn wait_until_listening() -> Result<()> {
    let start = Instant::now();
    let is_listening = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(":4853")) && words.nth(1) == Some("0A")
    };
    while start.elapsed() < PATIENCE {
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let table = std::fs::read_to_string(table).unwrap_or_default();
            if table.lines().any(is_listening) {
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("the server does not listen".to_owned())
}

/// Starts the program on urxe.
fn here(program: &str, flags: &str, address: IpAddr, server: Option<IpAddr>) -> Result<Running> {
    let server = server.map(|server| server.to_string());
    let server = server.as_deref().unwrap_or_default();
    start(&format!("{program} {flags} {server}"), address)
}

/// A program on urxe.
pub(crate) struct Running {
    pub(crate) child: Child,
    /// What it prints: a file, as an unread pipe would stop it.
    output: File,
}

/// Starts a program with its arguments on urxe.
pub(crate) fn start(line: &str, address: IpAddr) -> Result<Running> {
    let place = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.ok_or_else(|| format!("{name} is not set: tests/interop/run sets it"))
    };
    let (library, root) = (place("URXE_INTEROP_LIB")?, place("URXE_INTEROP_ROOT")?);
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("no program is named")?;
    let failed = |e: std::io::Error| format!("{program}: {e}");
    let output = nameless_file().map_err(failed)?;
    let child = Command::new("timeout")
        .arg(PATIENCE_S.to_string())
        .arg(root.join("usr/bin").join(program))
        .args(words)
        .env("LD_LIBRARY_PATH", library)
        .env("URXE_DEVICES", address.to_string())
        .env("URXE_VERBOSE", "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(output.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    Ok(Running { child, output })
}

fn nameless_file() -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!("urxe-interop-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Waits for its end, which must be a good one.
pub(crate) fn finish(mut program: Running) -> Result<()> {
    let status = program.child.wait().map_err(|e| e.to_string())?;
    if status.success() {
        return Ok(());
    }
    let mut words = Vec::new();
    let read = program
        .output
        .rewind()
        .and_then(|()| program.output.read_to_end(&mut words));
    read.map_err(|e| e.to_string())?;
    let last = &words[words.len().saturating_sub(LAST_WORDS)..];
    Err(format!(
        "on urxe: {status}: {}",
        String::from_utf8_lossy(last)
    ))
}

/// So many bytes of what a program printed are told, of its end.
const LAST_WORDS: usize = 3000;
