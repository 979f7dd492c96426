//! The tests of libfabric (fabtests), over its verbs provider: the tree is the folder that libfabric and fabtests were installed to.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::built::tree;
use crate::ends::alone;
use crate::harness::{LIMIT, run_within, urxe};
use crate::wheels::ethernet;

/// The script starts both ends by ssh, with options before the host's name. Here both are on this host.
const SSH: &str = "#!/bin/bash
while [[ $1 == -* ]]; do [ \"$1\" = -o ] && shift; shift; done
shift
exec bash -c \"$*\"
";

/// Messages without a connection, over reliable ones.
#[test]
fn quick_over_rxm() {
    check("verbs;ofi_rxm", "ofi_rxm/ofi_rxm", "", 50);
}

#[test]
fn quick_over_verbs() {
    // The first asks for what the provider refuses; the second resolves an identifier twice, which Linux refuses, too.
    check(
        "verbs",
        "verbs/verbs",
        "fi_rma_bw.*writedata,fi_msg_sockets",
        29,
    );
}

/// All of the set pass, but for the provider's list of what it does not have, and what `without` matches.
fn check(provider: &str, list: &str, without: &str, passing_min: usize) {
    let Some(tree) = tree("fabtests") else { return };
    let Some(interface) = ethernet() else {
        println!("skipped: the host has loopback alone, over which libfabric does not connect");
        return;
    };
    let _alone = alone();
    let devices = urxe::devices().expect("they can be listed");
    let device = devices
        .iter()
        .find(|device| device.interface() == interface);
    let mut addresses = device.expect("it is there").addresses().iter();
    let address = addresses.find(|address| address.is_ipv4());
    let address = address.expect("it was chosen for it").to_string();
    let place = std::env::temp_dir().join(format!("urxe-fabtests-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a folder");
    fs::write(place.join("ssh"), SSH).expect("it can be written");
    fs::set_permissions(place.join("ssh"), fs::Permissions::from_mode(0o755)).expect("it is ours");

    let mut command = urxe();
    let bin = tree.join("bin");
    command.args(["run", "--device", &interface, "--"]);
    command.arg(bin.join("runfabtests.sh")).arg("-p").arg(&bin);
    command.args(["-v", "-t", "quick", "-T", "60", "-f"]);
    command.arg(tree.join(format!("share/fabtests/test_configs/{list}.exclude")));
    if !without.is_empty() {
        command.args(["-e", without]);
    }
    command.args([provider, &address, &address]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", place.display()));
    command.env("LD_LIBRARY_PATH", tree.join("lib"));
    let ran = run_within(command, 20 * LIMIT);
    fs::remove_dir_all(place).expect("it is ours");
    let total = |what: &str| {
        let line = ran.text.lines().find(|line| line.contains(what));
        let number = line.and_then(|line| line.split_whitespace().next_back());
        number.and_then(|number| number.parse::<usize>().ok())
    };
    println!("{provider}: {:?} passed", total("Total Pass"));
    assert_eq!(total("Total Fail"), Some(0), "{}", ran.text);
    assert!(total("Total Pass") >= Some(passing_min), "{}", ran.text);
}
