//! Programs of the distribution, unchanged: on one side they run on urxe's drop-in library, on the other on the kernel.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{Lab, PATIENCE, Requester};
use crate::matrix::Row;
use crate::side::Result;

pub(crate) const ROWS: &[Row] = &[row("ibv_rc_pingpong", |lab| {
    pingpong(lab, "ibv_rc_pingpong")
})];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "prog",
        operation,
        run,
    }
}

/// Polling, with events; small messages and such of several packets, whose bytes the receiver checks.
fn pingpong(lab: &mut Lab, program: &str) -> Result<()> {
    lab.close()?;
    for flags in ["-c -n 100", "-c -n 100 -e", "-c -n 50 -s 20000 -m 1024"] {
        exchange(lab, program, flags).map_err(|e| format!("{program} {flags}: {e}"))?;
        lab.cases += 1;
    }
    Ok(())
}

/// Runs the server at the responder and the client at the requester; both must end well.
fn exchange(lab: &mut Lab, program: &str, flags: &str) -> Result<()> {
    let (urxe, rxe) = lab.hosts;
    // The two find each other over TCP and IPv4, whatever their packets take.
    let (urxe_v4, rxe_v4) = lab.meeting;
    let gid = if rxe.is_ipv4() { 1 } else { 2 };
    let in_guest = format!("{program} -d rxe0 -g {gid} {flags}");
    if lab.requester == Requester::Urxe {
        lab.guest(&format!(
            "rm -f /tmp/program.rc; (timeout 60 {in_guest}; echo $? >/tmp/program.rc) \
             >/tmp/program.out 2>&1 </dev/null &
             {LISTENS}"
        ))?;
        let client = here(program, flags, urxe, Some(rxe_v4))?;
        finish(client)?;
        let said = lab.guest(
            "for i in $(seq 300); do [ -e /tmp/program.rc ] && break; sleep 0.1; done; \
             cat /tmp/program.out; [ \"$(cat /tmp/program.rc)\" = 0 ]",
        );
        said.map(drop)
    } else {
        let server = here(program, flags, urxe, None)?;
        let client = wait_until_listening()
            .and_then(|()| lab.guest(&format!("timeout 60 {in_guest} {urxe_v4}")));
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
    command.arg("60").arg(root.join("usr/bin").join(program));
    command.args(["-g", "0"]).args(flags.split(' '));
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
