//! docs/KUBERNETES.md: programs between pods, as far as a host without a cluster can have them. A pod is a network and a
//! `/dev/shm` of its own here, and an ordinary user without capabilities.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Ran, addresses, program, run};
use crate::surroundings::package;

/// A file of `release/kubernetes`.
fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../release/kubernetes");
    fs::read_to_string(folder.join(name)).expect(name)
}

/// Runs a script in the namespaces of a pod; none where that is not possible.
fn in_a_pod(script: &str, variables: &[(&str, &str)]) -> Option<Ran> {
    let pod = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-ec", script]);
        command.env("PACKAGE", package()).env("AS_USER", AS_USER);
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null());
        command
    };
    let is_possible = rustix::process::getuid().is_root()
        && pod(&format!(
            "mount -t tmpfs none /dev/shm; ip link add v0 type veth peer name v1; {AS_USER} true"
        ))
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_possible {
        println!("skipped: only root can make what a pod has (unshare, ip, setpriv)");
        return None;
    }
    Some(run(pod(script)))
}

const AS_USER: &str =
    "setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --no-new-privs";

/// The client's pod, which makes the server's.
const TWO_PODS: &str = r#"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkfifo "$work/made" "$work/linked"
export work
mount -t tmpfs none /dev/shm
ip link set lo up
ip link add eth0 mtu 1450 type veth peer name peer mtu 1450
unshare --net --mount sh -ec '
    mount -t tmpfs none /dev/shm
    ip link set lo up
    echo >"$work/made"
    read -r _ <"$work/linked"
    ip link set peer name eth0
    ip addr add 10.98.0.2/24 dev eth0
    ip link set eth0 up
    exec $AS_USER "$PACKAGE/urxe" run -- $SERVER
' &
server=$!
read -r _ <"$work/made"
ip link set peer netns $server
echo >"$work/linked"
ip addr add 10.98.0.1/24 dev eth0
ip link set eth0 up
tries=0
until $AS_USER "$PACKAGE/urxe" run -- $CLIENT; do
    tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.2
done
wait $server
echo both are done
"#;

/// What a container of the manifest is started with.
fn arguments(manifest: &str, is_client: bool) -> String {
    let lines = manifest.lines().map(str::trim);
    let mut all = lines.filter_map(|line| line.strip_prefix("args: "));
    let found = if is_client {
        all.next_back()
    } else {
        all.next()
    };
    let list: Vec<String> = serde_json::from_str(found.expect("arguments")).expect("a list");
    list.join(" ")
}

#[test]
fn perftest_between_pods() {
    if program("ib_write_bw", "perftest", addresses().0).is_none() {
        return;
    }
    let manifest = file("perftest.yaml");
    let (server, client) = (arguments(&manifest, false), arguments(&manifest, true));
    let client = client.replace("perftest-server", "10.98.0.2");
    let image = file("Containerfile");
    let device = image
        .lines()
        .find_map(|line| line.strip_prefix("ENV URXE_DEVICES="));
    let variables = [
        ("SERVER", server.as_str()),
        ("CLIENT", client.as_str()),
        ("URXE_DEVICES", device.expect("the image says which")),
    ];
    let Some(ran) = in_a_pod(TWO_PODS, &variables) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    for part in [
        "65536      5000",
        "Mtu             : 1024[B]",
        "both are done",
    ] {
        assert!(ran.text.contains(part), "no {part}: {}", ran.text);
    }
}

#[test]
fn the_device_file_of_runtimes_is_enough_for_programs() {
    let cdi: Value = serde_json::from_str(&file("urxe.cdi.json")).expect("JSON");
    assert_eq!(cdi["kind"], "rdma/urxe");
    let edits = &cdi["containerEdits"];
    let mount = &edits["mounts"][0];
    let variables: Vec<_> = edits["env"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let at = mount["containerPath"].as_str().expect("a folder");
    assert_eq!(mount["hostPath"], at);
    // Where packages have the library.
    let folder = format!("{at}/lib/urxe");
    assert_eq!(variables[0], format!("LD_LIBRARY_PATH={folder}"));
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../release/build");
    let built = fs::read_to_string(built).expect("the script");
    assert!(built.contains("/lib/urxe"), "the layout of packages");

    if program("ibv_devinfo", "ibverbs-utils", addresses().0).is_none() {
        return;
    }
    let script = format!(
        "mount -t tmpfs none /dev/shm; mount -t tmpfs none /opt; mkdir -p {folder}
        mount --bind $PACKAGE/urxe-lib {folder}; ip link set lo up
        ip link add eth0 type veth peer name peer; ip addr add 10.98.0.1/24 dev eth0
        ip link set peer up; ip link set eth0 up; exec $AS_USER env {} ibv_devinfo",
        variables.join(" ")
    );
    let Some(ran) = in_a_pod(&script, &[]) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert_eq!(ran.text.matches("PORT_ACTIVE").count(), 1, "{}", ran.text);
}
