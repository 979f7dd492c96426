//! Valkey with its RDMA module: the test that it brings, a server and a client of four threads, which compare what they get.

use std::process::{Command, Stdio};

use crate::built::tree;
use crate::ends::{alone, loopback};
use crate::harness::{run, urxe};

#[test]
fn its_test_of_rdma_passes() {
    let Some(tree) = tree("valkey") else { return };
    // Its script is for the system's Python.
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", "import netifaces"]);
    let has_module = python.stderr(Stdio::null()).status();
    if !has_module.is_ok_and(|status| status.success()) {
        println!("skipped: netifaces is missing (apt-get install python3-netifaces)");
        return;
    }
    let module = tree.join("src/valkey-rdma.so");
    assert!(module.is_file(), "it is not built with BUILD_RDMA=module");
    let _alone = alone();
    // The script takes the first address of the device's interface, and always the same port.
    let _loopback = loopback();
    let mut command = urxe();
    command.args(["run", "--device", "lo", "--"]);
    command.arg("./runtest-rdma").current_dir(tree);
    command.stdin(Stdio::null());
    let ran = run(command);
    // The script ends with 0 whatever happened.
    let has_passed = ran
        .text
        .contains("Valkey Over RDMA test over 127.0.0.1 [OK]");
    assert!(has_passed && !ran.text.contains("[FAILED]"), "{}", ran.text);
    for what in ["PING/PONG", "SET", "GET"] {
        let of_threads = ran.text.lines().filter(|line| {
            line.contains("test thread[") && line.contains(what) && line.ends_with("[OK]")
        });
        assert_eq!(of_threads.count(), 4, "{what}: {}", ran.text);
    }
}
