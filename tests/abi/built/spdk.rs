//! SPDK: its NVMe-oF target with a disk in memory, and its initiators, over the RDMA transport.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::{env, fs};

use serde_json::{Value, json};

use crate::built::tree;
use crate::cm_ends::Talking;
use crate::ends::alone;
use crate::harness::{Ran, addresses, run, urxe};

const SUBSYSTEM: &str = "nqn.2016-06.io.spdk:cnode1";
const VERIFIER: &str = "build/examples/bdevperf";
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
const PORT: &str = "4420";

/// What an adapter is taken for: SPDK asks less of Soft-RoCE, by its maker's number.
const KINDS: [&str; 2] = ["generic", "rxe"];

/// A target that listens on an address, with a folder for the test's files.
struct Target {
    tree: PathBuf,
    kind: &'static str,
    address: Ipv4Addr,
    folder: PathBuf,
    talking: Talking,
}

impl Target {
    /// `transport`: more of its options than its type. `more`: of the program.
    fn start(tree: &Path, kind: &'static str, transport: Value, more: &[&str]) -> Target {
        Target::start_at(addresses().0, tree, kind, transport, more)
    }

    fn start_at(
        address: Ipv4Addr,
        tree: &Path,
        kind: &'static str,
        mut transport: Value,
        more: &[&str],
    ) -> Target {
        let folder = env::temp_dir().join(format!("urxe-spdk-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        transport["trtype"] = "RDMA".into();
        let config = json!({"subsystems": [
            {"subsystem": "bdev", "config": [
                {"method": "bdev_malloc_create",
                 "params": {"name": "Malloc0", "num_blocks": 131_072, "block_size": 512}},
            ]},
            {"subsystem": "nvmf", "config": [
                {"method": "nvmf_create_transport", "params": transport},
                {"method": "nvmf_create_subsystem",
                 "params": {"nqn": SUBSYSTEM, "allow_any_host": true}},
                {"method": "nvmf_subsystem_add_ns",
                 "params": {"nqn": SUBSYSTEM, "namespace": {"bdev_name": "Malloc0"}}},
                {"method": "nvmf_subsystem_add_listener",
                 "params": {"nqn": SUBSYSTEM, "listen_address": address_of(address)}},
                {"method": "nvmf_subsystem_add_listener",
                 "params": {"nqn": DISCOVERY, "listen_address": address_of(address)}},
            ]},
        ]});
        let path = folder.join("target.json");
        fs::write(&path, config.to_string()).expect("the folder is ours");
        let mut command = program(tree, "build/bin/nvmf_tgt", kind, address);
        command.args(["-m", "[0]", "-s", "512", "-r"]);
        command.arg(folder.join("rpc.sock")).arg("--json").arg(path);
        command.args(more);
        let mut talking = talk(&command);
        talking.wait_for(&format!("Target Listening on {address} port {PORT}"));
        Target {
            tree: tree.to_path_buf(),
            kind,
            address,
            folder,
            talking,
        }
    }

    /// One of the initiators; it must end well.
    fn run(&self, name: &str, args: &[&str]) -> String {
        let mut command = program(&self.tree, name, self.kind, self.address);
        command.args(args);
        self.ended_well(name, args, run(command))
    }

    fn ended_well(&self, name: &str, args: &[&str], ran: Ran) -> String {
        assert_eq!(
            ran.code,
            Some(0),
            "{name} {args:?}, as {}: {}\nthe target: {}",
            self.kind,
            ran.text,
            self.talking.said()
        );
        ran.text
    }

    /// How initiators name it.
    fn name(&self) -> String {
        format!(
            "trtype:RDMA adrfam:IPv4 traddr:{} trsvcid:{PORT} subnqn:{SUBSYSTEM}",
            self.address
        )
    }

    /// Reads and writes of a size, at random.
    fn perf(&self, depth: &str, size: &str, more: &[&str]) {
        let name = self.name();
        let mut args = vec![
            "-q", depth, "-o", size, "-w", "randrw", "-M", "50", "-t", "1", "-s", "256",
        ];
        args.extend(["-c", initiators_core(), "-r", &name]);
        args.extend(more);
        let text = self.run("build/bin/spdk_nvme_perf", &args);
        assert!(total(&text)[0] > 0.0, "nothing was read or written: {text}");
    }

    /// Blocks are written, read and compared.
    fn verify(&self, depth: &str, size: &str, more: &[&str]) {
        let mut args = self.verifier(depth, size);
        args.extend(more.iter().map(ToString::to_string));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let text = self.run(VERIFIER, &args);
        // Requests a second, MiB a second, failures a second, timeouts a second.
        let total = total(&text);
        assert!(total[0] > 0.0, "nothing was compared: {text}");
        assert_eq!(total[2..4], [0.0, 0.0], "{text}");
    }

    /// What the program that does so is told.
    fn verifier(&self, depth: &str, size: &str) -> Vec<String> {
        let mut params = address_of(self.address);
        params["name"] = "Nvme0".into();
        params["subnqn"] = SUBSYSTEM.into();
        let attach = json!({"method": "bdev_nvme_attach_controller", "params": params});
        let config = json!({"subsystems": [{"subsystem": "bdev", "config": [attach]}]});
        let path = self.folder.join("initiator.json");
        fs::write(&path, config.to_string()).expect("the folder is ours");
        let socket = self.folder.join("initiator.sock");
        let mut args = vec!["-q", depth, "-o", size, "-w", "verify"];
        args.extend(["-s", "512", "-m", initiators_core()]);
        args.extend(["--json", path.to_str().expect("a path in Unicode")]);
        args.extend(["-r", socket.to_str().expect("a path in Unicode")]);
        args.into_iter().map(str::to_owned).collect()
    }

    /// Has it end.
    fn end(self) {
        self.talking.ask_to_end();
        let ran = self.talking.finish();
        assert_eq!(ran.code, Some(0), "as {}: {}", self.kind, ran.text);
        for word in ["*ERROR*", "*WARNING*"] {
            let line = ran.text.lines().find(|line| line.contains(word));
            assert_eq!(line, None, "as {}: {}", self.kind, ran.text);
        }
        fs::remove_dir_all(self.folder).expect("it is ours");
    }
}

/// The figures of the last row that initiators print.
fn total(text: &str) -> Vec<f64> {
    let row = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Total"));
    let row = row.unwrap_or_else(|| panic!("no total: {text}"));
    let figures = row.split_whitespace().filter(|word| *word != ":");
    figures
        .map(|word| word.parse().expect("a number"))
        .collect()
}

fn address_of(address: Ipv4Addr) -> Value {
    json!({"trtype": "RDMA", "adrfam": "IPv4", "traddr": address.to_string(), "trsvcid": PORT})
}

/// One of its programs on the library, with ordinary memory: huge pages are few machines'.
fn program(tree: &Path, name: &str, kind: &str, address: Ipv4Addr) -> Command {
    let mut command = urxe();
    command.args(["run", "--as", kind, "--device", &address.to_string(), "--"]);
    command.arg(tree.join(name)).arg("--no-huge");
    command
}

/// Starts one to listen to: what it says of itself is on standard error, its figures are not.
fn talk(told: &Command) -> Talking {
    let mut command = Command::new("sh");
    command.args(["-c", "exec stdbuf -oL \"$@\" 2>&1", "sh"]);
    command.arg(told.get_program()).args(told.get_args());
    Talking::start(command)
}

/// Both sides poll: on two processors, where there are two.
fn initiators_core() -> &'static str {
    let count = available_parallelism().map_or(1, std::num::NonZero::get);
    if count > 1 { "[1]" } else { "[0]" }
}

#[test]
fn initiators_read_and_write() {
    let Some(tree) = tree("spdk") else { return };
    for kind in KINDS {
        let _alone = alone();
        let target = Target::start(&tree, kind, json!({}), &[]);
        target.run("build/bin/spdk_nvme_identify", &["-r", &target.name()]);
        target.perf("1", "4096", &[]);
        target.perf("32", "4096", &["-H"]);
        target.perf("128", "262144", &["--transport-stat"]);
        // Nine pieces each, by four connections.
        target.perf("32", "36864", &["-O", "4096", "-P", "4"]);
        target.end();
    }
}

#[test]
fn blocks_are_compared() {
    let Some(tree) = tree("spdk") else { return };
    for kind in KINDS {
        let _alone = alone();
        let target = Target::start(&tree, kind, json!({}), &[]);
        target.verify("128", "4096", &["-t", "1"]);
        target.verify("16", "65536", &["-t", "1"]);
        target.end();
    }
}

/// With little room for data in commands, the target reads what is written; without an SRQ, each connection has its receives.
#[test]
fn targets_of_other_kinds_are_compared() {
    let Some(tree) = tree("spdk") else { return };
    for options in [
        json!({"in_capsule_data_size": 256}),
        json!({"no_srq": true}),
    ] {
        let _alone = alone();
        let target = Target::start(&tree, "generic", options, &[]);
        target.verify("32", "4096", &["-t", "1"]);
        target.verify("16", "131072", &["-t", "1"]);
        target.end();
    }
}

/// Both sides wait by epoll for the descriptors of completion channels.
#[test]
fn interrupts_take_the_place_of_polling() {
    let Some(tree) = tree("spdk") else { return };
    let _alone = alone();
    let target = Target::start(&tree, "generic", json!({}), &["--interrupt-mode"]);
    target.verify("32", "4096", &["-t", "1"]);
    target.verify("16", "65536", &["-t", "1", "--interrupt-mode"]);
    target.end();
}

/// What is under way when a target is killed fails, and the initiator connects to the next one at the address.
#[test]
fn a_target_that_was_killed_is_found_again() {
    let Some(tree) = tree("spdk") else { return };
    let _alone = alone();
    let target = Target::start(&tree, "generic", json!({}), &[]);
    let mut command = program(&tree, VERIFIER, "generic", target.address);
    // It goes on in spite of failures, for longer than this takes.
    command
        .args(target.verifier("32", "4096"))
        .args(["-f", "-t", "600"]);
    let mut initiator = talk(&command);
    initiator.wait_for("Running I/O");
    drop(target.talking);
    let target = Target::start_at(target.address, &tree, "generic", json!({}), &[]);
    initiator.wait_for("Resetting controller successful");
    initiator.ask_to_end();
    let ran = initiator.finish();
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(total(&ran.text)[0] > 0.0, "{}", ran.text);
    target.end();
}
