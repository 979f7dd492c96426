//! Two hosts on this machine: network namespaces with a virtual cable between them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::missing::Missing;

pub(super) const INTERFACE: &str = "eth0";
/// Of a range for such measurements (RFC 2544).
const ADDRESSES: [&str; 2] = ["198.18.0.1", "198.18.0.2"];
const PATIENCE: Duration = Duration::from_secs(10);

/// Each is a process that waits for the end of its input: when this one ends, however it ends, so do they and their networks.
#[derive(Debug)]
pub(super) struct Hosts {
    keepers: Vec<Child>,
    agent: PathBuf,
}

impl Hosts {
    /// What launchers use in place of ssh is written into `folder`.
    pub(super) fn make(folder: &Path) -> Result<Hosts, Missing> {
        if !rustix::process::geteuid().is_root() {
            return Err(Missing(
                "two hosts, as network namespaces: only root may make them".to_owned(),
            ));
        }
        let missing = |why: String| {
            let needs = "(it needs unshare and nsenter of util-linux, and ip of iproute2)";
            Missing(format!("two hosts, as network namespaces {needs}: {why}"))
        };
        let mut hosts = Hosts {
            keepers: Vec::new(),
            agent: folder.join("agent"),
        };
        for _ in ADDRESSES {
            hosts.keepers.push(keeper().map_err(missing)?);
        }
        hosts.cable().map_err(missing)?;
        hosts
            .write_agent()
            .map_err(|error| missing(error.to_string()))?;
        Ok(hosts)
    }

    fn cable(&self) -> Result<(), String> {
        let [one, other] = [0, 1].map(|n: usize| self.keepers[n].id().to_string());
        let ends = [
            "netns", &one, "type", "veth", "peer", "name", INTERFACE, "netns", &other,
        ];
        let mut link = Command::new("ip");
        succeed(link.args(["link", "add", INTERFACE]).args(ends))?;
        for (n, address) in ADDRESSES.iter().enumerate() {
            let net = format!("{address}/24");
            succeed(
                self.on(n)
                    .args(["ip", "addr", "add", &net, "dev", INTERFACE]),
            )?;
            succeed(self.on(n).args(["ip", "link", "set", INTERFACE, "up"]))?;
        }
        (0..ADDRESSES.len()).try_for_each(|n| self.wait_until_up(n))
    }

    /// The kernel says it some time after it was asked, and until then a device's port is down.
    fn wait_until_up(&self, host: usize) -> Result<(), String> {
        let start = Instant::now();
        let file = format!("/sys/class/net/{INTERFACE}/operstate");
        loop {
            let state = succeed(self.on(host).args(["cat", &file]))?;
            match state.trim() {
                "up" => return Ok(()),
                state if start.elapsed() > PATIENCE => {
                    return Err(format!("the cable between them is {state}"));
                }
                _ => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn write_agent(&self) -> std::io::Result<()> {
        let [one, other] = [0, 1].map(|n: usize| self.keepers[n].id());
        let [first, second] = ADDRESSES;
        let script = format!(
            "#!/bin/sh\n# As ssh: options, a host, a command.\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\ncase $1 in\n{first}) host={one} ;;\n\
             {second}) host={other} ;;\n*) echo \"no host $1\" >&2; exit 255 ;;\nesac\nshift\nexec nsenter -t $host -n -m sh -c \"$*\"\n"
        );
        fs::write(&self.agent, script)?;
        fs::set_permissions(&self.agent, fs::Permissions::from_mode(0o700))
    }

    /// Runs on the first host what its arguments say.
    pub(super) fn first(&self) -> Command {
        self.on(0)
    }

    fn on(&self, host: usize) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.keepers[host].id().to_string();
        command.args(["-t", &pid, "-n", "-m"]);
        command
    }

    pub(super) fn agent(&self) -> &Path {
        &self.agent
    }

    /// As launchers take them.
    pub(super) fn names() -> String {
        ADDRESSES.join(",")
    }
}

/// A process in a network of its own, with the files in /sys that belong to it.
fn keeper() -> Result<Child, String> {
    let lives = "mount -t sysfs sysfs /sys && ip link set lo up && echo ready && read _";
    let mut keeper = Command::new("unshare");
    let keeper = keeper.args(["--net", "--mount", "sh", "-c", lives]);
    let piped = keeper.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut keeper = piped.stderr(Stdio::null()).spawn();
    let child = keeper.as_mut().map_err(|error| error.to_string())?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        // An end of its output says as much as an error.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    let mut keeper = keeper.map_err(|error| error.to_string())?;
    if line.trim() != "ready" {
        let _ = keeper.kill();
        let _ = keeper.wait();
        return Err("a network namespace cannot be made here".to_owned());
    }
    Ok(keeper)
}

/// What it prints.
fn succeed(command: &mut Command) -> Result<String, String> {
    let ran = command.stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned())
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for keeper in &mut self.keepers {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}
