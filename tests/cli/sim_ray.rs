//! `python -m urxe.ray_sweep`: a sweep over a cluster of two nodes, of which a worker is killed. Skipped where Python has no Ray.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Ran, binary, is_alive, kill, project_file, run, urxe, wait_until};
use crate::sim::Folder;

const SEEDS: &str = "--seeds=2";

/// A node of the cluster, which ends with all of its processes when it is dropped.
struct Node(Child);

impl Node {
    fn start(folder: &Folder, name: &str, args: &[&str]) -> Node {
        let log = folder.file(name);
        let out = fs::File::create(&log).expect("can be made");
        let mut ray = python(folder);
        ray.args([
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            "--num-cpus=1",
        ])
        .args(["--node-ip-address=127.0.0.1", "--disable-usage-stats"])
        .args(["--min-worker-port=0", "--max-worker-port=0"])
        .arg("--object-store-memory=100000000")
        .args(args)
        .stdin(Stdio::null())
        .stdout(out.try_clone().expect("can be cloned"))
        .stderr(out);
        let mut node = Node(ray.spawn().expect("python3 starts"));
        wait_until(&format!("{name} has begun"), || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let end = node.0.try_wait().expect("a child");
            assert!(end.is_none(), "{name}: {end:?}\n{text}");
            text.contains("will now block")
        });
        node
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        kill(self.0.id(), Signal::TERM);
        // Nothing is left to do if it cannot be waited for.
        let _ = self.0.wait();
    }
}

/// Python with the package of the source tree and the command of this test.
fn python(folder: &Folder) -> Command {
    let mut python = Command::new("python3");
    let path = std::env::var("PATH").unwrap_or_default();
    python
        .env("PATH", format!("{}:{path}", folder.file("bin").display()))
        .env("PYTHONPATH", project_file("release/wheel"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("RAY_ADDRESS");
    python
}

/// The command `urxe` of the nodes. It notes its calls, with the node; the first one for shard 1 also notes the worker that it is a child
/// of, and stops before it has done anything.
fn noting_command(folder: &Folder) {
    let text = format!(
        "#!/bin/sh\ncd '{}' || exit\necho \"$RAY_RAYLET_PID $*\" >>calls\ncase \"$*\" in\n*--shard=1/4*)\n\
         \tif mkdir stopped 2>/dev/null; then\n\t\techo $PPID $$ >it && mv it victim\n\t\tkill -STOP $$\n\tfi ;;\nesac\n\
         cd \"$OLDPWD\" && exec '{}' \"$@\"\n",
        folder.0.display(),
        binary().display()
    );
    fs::create_dir(folder.file("bin")).expect("can be made");
    let path = folder.file("bin").join("urxe");
    fs::write(&path, text).expect("can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("is ours");
}

/// Calls of the nodes' command for a shard: the nodes that made them.
fn calls(folder: &Folder, shard: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.file("calls")).unwrap_or_default();
    let of_shard = text
        .lines()
        .filter(|line| line.contains(&format!(" --shard={shard} ")));
    let node = |line: &str| line.split(' ').next().map(str::to_owned);
    of_shard.filter_map(node).collect()
}

/// What a sweep came to, without its times and the number of shards.
fn outcome(ran: &Ran) -> String {
    let lines = ran
        .stdout
        .lines()
        .filter(|line| !line.contains("shards put together"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let (runs, rest) = text.split_once(" runs").expect("a total");
    let rest = rest.split_once(", ").expect("the rest of the total").1;
    format!("{runs} runs, {rest}")
}

fn sweep(folder: &Folder, address: &str, file: &Path, args: &[&str]) -> Command {
    let mut sweep = python(folder);
    sweep
        .current_dir(project_file("fabric-sim/scenarios"))
        .args(["-m", "urxe.ray_sweep", "--address", address, "--shards=4"])
        .arg(file)
        .args(args);
    sweep
}

#[test]
fn a_sweep_over_ray_is_that_of_one_machine_though_a_worker_is_killed() {
    let folder = Folder::new("ray");
    let has_ray = python(&folder).args(["-c", "import ray"]).output();
    if !has_ray.is_ok_and(|ran| ran.status.success()) {
        println!(
            "skipped: python3 has no Ray (pip install ray==2.60.0 into an environment that is first in PATH)"
        );
        return;
    }
    noting_command(&folder);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|at| at.local_addr());
    let port = port.expect("a port is free").port();
    let address = format!("127.0.0.1:{port}");
    let files = folder.file("ray");
    let files = format!("--temp-dir={}", files.display());
    let port = format!("--port={port}");
    let head = ["--head", &port, &files, "--include-dashboard=false"];
    let _head = Node::start(&folder, "head", &head);
    let _second = Node::start(&folder, "second", &["--address", &address]);

    let (one, all) = (folder.file("one.jsonl"), folder.file("all.jsonl"));
    let results = |path: &Path| format!("--results={}", path.display());
    let file = Path::new("sweep.toml");
    let (over, alone) = (results(&all), results(&one));
    let mut command = sweep(&folder, &address, file, &[SEEDS, &over]);
    let running = std::thread::spawn(move || run(&mut command));
    // While one node's worker is with shard 1, the other node has to take another.
    let victim = folder.file("victim");
    wait_until("both nodes have a shard", || {
        assert!(!running.is_finished(), "it ended before");
        victim.exists()
            && ["2/4", "3/4", "4/4"]
                .iter()
                .any(|s| !calls(&folder, s).is_empty())
    });
    let victim = fs::read_to_string(victim).expect("is there");
    let ids: Vec<u32> = victim
        .split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect();
    let [worker, child] = ids[..] else {
        panic!("no ids: {victim}");
    };
    kill(worker, Signal::KILL);
    wait_until("the worker's command has ended with it", || {
        !is_alive(child)
    });
    let ran = running.join().expect("it ends").expect_success();

    let mut single = urxe();
    single
        .current_dir(project_file("fabric-sim/scenarios"))
        .args(["sim", "sweep", "sweep.toml", SEEDS, &alone]);
    let single = run(&mut single).expect_success();
    assert_eq!(outcome(&ran), outcome(&single));
    assert!(
        fs::read(&all).expect("is there") == fs::read(&one).expect("is there"),
        "other results"
    );
    assert_eq!(
        calls(&folder, "1/4").len(),
        2,
        "the killed worker's shard ran again"
    );
    let of_others = ["2/4", "3/4", "4/4"].map(|shard| calls(&folder, shard));
    assert_eq!(of_others.each_ref().map(Vec::len), [1; 3], "and no other");
    assert!(
        of_others
            .iter()
            .flatten()
            .any(|node| *node != calls(&folder, "1/4")[0]),
        "on one node"
    );
    assert!(ran.stderr.contains("\n4 shards: "), "{}", ran.stderr);

    // What cannot be is told in the command's words, and not tried again.
    for (file, args, words) in [
        (
            file,
            &["--set", "flow"][..],
            "--set flow: a setting is path=value",
        ),
        (
            Path::new("/etc/hostname"),
            &[],
            "is not below the current folder",
        ),
        (Path::new("none.toml"), &[], "cannot read none.toml"),
    ] {
        let ran = run(&mut sweep(&folder, &address, file, args));
        assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}
