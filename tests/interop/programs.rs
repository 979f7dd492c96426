//! Programs of the distribution, unchanged: on one side they run on urxe's drop-in library, on the other on the kernel.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{Lab, PATIENCE, Requester};
use crate::matrix::Row;
use crate::side::Result;

pub(crate) const ROWS: &[Row] = &[
    row("ibv_rc_pingpong", |lab| {
        // Polling, with events; small messages and such of several packets, whose bytes the receiver checks.
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
const PATIENCE_S: u32 = 100;

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
    let in_guest = format!("{program} -d rxe0 {gid_flag} {gid} {flags}");
    let flags = &format!("{gid_flag} 0 {flags}");
    if lab.requester == Requester::Urxe {
        lab.guest(&format!(
            "rm -f /tmp/program.rc; (timeout {PATIENCE_S} {in_guest}; echo $? >/tmp/program.rc) \
             >/tmp/program.out 2>&1 </dev/null &
             {LISTENS}"
        ))?;
        let client = here(program, flags, urxe, Some(rxe_v4))?;
        finish(client)?;
        let said = lab.guest(
            "for i in $(seq 900); do [ -e /tmp/program.rc ] && break; sleep 0.1; done; \
             cat /tmp/program.out; [ \"$(cat /tmp/program.rc)\" = 0 ]",
        );
        said.map(drop)
    } else {
        let server = here(program, flags, urxe, None)?;
        let client = wait_until_listening()
            .and_then(|()| lab.guest(&format!("timeout {PATIENCE_S} {in_guest} {urxe_v4}")));
        let server = finish(server);
        client?;
        server
    }
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
fn here(program: &str, flags: &str, address: IpAddr, server: Option<IpAddr>) -> Result<Child> {
    let place = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.ok_or_else(|| format!("{name} is not set: tests/interop/run sets it"))
    };
    let (library, root) = (place("URXE_INTEROP_LIB")?, place("URXE_INTEROP_ROOT")?);
    let mut command = Command::new("timeout");
    command
        .arg(PATIENCE_S.to_string())
        .arg(root.join("usr/bin").join(program));
    command.args(flags.split(' '));
    command.args(server.map(|server| server.to_string()));
    command.env("LD_LIBRARY_PATH", library);
    command.env("URXE_DEVICES", address.to_string());
    command.env("URXE_VERBOSE", "1");
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|e| format!("{program}: {e}"))
}

fn finish(program: Child) -> Result<()> {
    let output = program.wait_with_output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let words = [output.stdout, output.stderr].concat();
    Err(format!(
        "on urxe: {}: {}",
        output.status,
        String::from_utf8_lossy(&words)
    ))
}
