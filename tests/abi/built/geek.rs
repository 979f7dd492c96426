//! the-geek-in-the-corner: the samples that many a program began from.

use std::path::Path;
use std::process::Command;

use crate::built::tree;
use crate::cm_ends::Talking;
use crate::ends::alone;
use crate::harness::{Ran, addresses, program, run};

/// A server that says line by line what it does, and what its client came to.
struct Sample {
    server: Talking,
    address: String,
    client: Command,
}

impl Sample {
    /// The programs `folder/server` with these arguments, and `folder/client`.
    fn start(folder: &Path, [server, client]: [&str; 2], args: &[&str]) -> Sample {
        let address = addresses().0;
        let mut line = program("stdbuf", "coreutils", address).expect("every Debian has it");
        line.arg("-oL").arg(folder.join(server)).args(args);
        line.current_dir(std::env::temp_dir());
        let client = folder.join(client);
        let client = client.to_str().expect("a path in Unicode");
        Sample {
            server: Talking::start(line),
            address: address.to_string(),
            client: program(client, "", address).expect("it is built"),
        }
    }

    /// The port of which the server tells.
    fn port(&mut self) -> String {
        self.server.wait_for("listening on port ");
        let said = self.server.said();
        let (_, rest) = said.split_once("listening on port ").expect("it said so");
        rest.split('.').next().expect("a number").to_owned()
    }
}

fn expect_well(name: &str, ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{name}: {}", ran.text);
}

/// The client goes as soon as both messages are through. On a busy machine the server's polling thread may come too late then to say what
/// it received: the other one destroys the QP, and with it the completion. So once in ten runs it must say so.
#[test]
fn messages() {
    let Some(tree) = tree("geek") else { return };
    let _alone = alone();
    let folder = tree.join("01_basic-client-server");
    let says_what_it_got = (0..10).any(|_| {
        let mut sample = Sample::start(&folder, ["server", "client"], &[]);
        let port = sample.port();
        sample.client.args([&sample.address, &port]);
        let ran = run(sample.client);
        expect_well("client", &ran);
        for words in [
            "received message: message from passive/server side",
            "send completed successfully.",
        ] {
            assert!(ran.text.contains(words), "{}", ran.text);
        }
        sample.server.wait_for("peer disconnected.");
        let words = "received message: message from active/client side";
        sample.server.said().contains(words)
    });
    assert!(says_what_it_got);
}

/// The answer and the ACK of what it answers come in either order: for the sample one of them is the wrong one.
#[test]
fn reads_and_writes() {
    let Some(tree) = tree("geek") else { return };
    let _alone = alone();
    let folder = tree.join("02_read-write");
    for mode in ["write", "read"].repeat(10) {
        let mut sample = Sample::start(&folder, ["rdma-server", "rdma-client"], &[mode]);
        let port = sample.port();
        sample.client.args([mode, &sample.address, &port]);
        let ran = run(sample.client);
        expect_well(mode, &ran);
        let words = "remote buffer: message from passive/server side";
        assert!(ran.text.contains(words), "{mode}: {}", ran.text);
        // What the server then says is a matter of luck: one of its threads polls the last completions, and another one destroys the QP,
        // which takes those along that are left.
        sample.server.wait_for("peer disconnected.");
    }
}

#[test]
fn a_file() {
    let Some(tree) = tree("geek") else { return };
    let _alone = alone();
    let folder = tree.join("03_file-transfer/rdma-file-transfer");
    let here = std::env::temp_dir().join(format!("urxe-geek-{}", std::process::id()));
    std::fs::create_dir_all(&here).expect("a folder");
    // The server writes to the folder that it is started in, under the name that the client tells.
    let name = format!("urxe-geek-file-{}", std::process::id());
    let bytes: Vec<u8> = (0..12_345_678u32)
        .map(|i| (i.wrapping_mul(i) / 7) as u8)
        .collect();
    std::fs::write(here.join(&name), &bytes).expect("it can be written");
    let mut sample = Sample::start(&folder, ["server", "client"], &[]);
    sample.server.wait_for("waiting for connections");
    sample
        .client
        .args([&sample.address, &name])
        .current_dir(&here);
    // In half of the runs it ends with 1, with any adapter: it takes the receive that the end flushes for a failure.
    let ran = run(sample.client);
    sample.server.wait_for("finished transferring");
    let arrived = std::env::temp_dir().join(&name);
    let is_equal = std::fs::read(&arrived).expect("a file") == bytes;
    std::fs::remove_file(arrived).expect("it is ours");
    std::fs::remove_dir_all(here).expect("it is ours");
    assert!(is_equal, "{}", ran.text);
}
