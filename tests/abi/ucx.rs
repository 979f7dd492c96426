//! UCX and libfabric: libraries that other people's programs reach RDMA by.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use crate::cm_ends::Talking;
use crate::ends::alone;
use crate::harness::{Ran, addresses, pair, pair_of, port, program, run, urxe};

/// `urxe run` in front of a program: UCX takes no device without the files that this shows it. None where the
/// program is not installed.
fn launched(name: &str, package: &str, device: Ipv4Addr) -> Option<Command> {
    program(name, package, device)?;
    let mut command = urxe();
    command
        .args(["run", "--device", &device.to_string(), "--", name])
        .stdin(Stdio::null());
    Some(command)
}

/// Server and client of `ucx_perftest`, both on one address; both must end well, and all messages be counted.
fn perftest(transports: Option<&str>, args: &[&str], count: &str) {
    let (address, _) = addresses();
    let port = port();
    let start = || {
        let mut command = launched("ucx_perftest", "ucx-utils", address)?;
        command
            .args(["-p", &port, "-n", count, "-w", "2"])
            .args(args);
        if let Some(transports) = transports {
            command
                .env("UCX_TLS", transports)
                .env("UCX_NET_DEVICES", "urxe0:1");
        }
        Some(command)
    };
    let Some((server, client)) = pair_of(start, &port) else {
        return;
    };
    assert_eq!(
        (server.code, client.code),
        (Some(0), Some(0)),
        "{transports:?} {args:?}: {server:?} {client:?}"
    );
    let last = client.text.lines().find(|line| line.starts_with("Final:"));
    let counted = last.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(counted, Some(count), "{}", client.text);
}

/// What programs on UCX use: it makes connections over UD, and then uses what it was told to.
fn protocols(transports: &str) {
    for (size, count) in [("8", "200"), ("1048576", "10")] {
        for test in ["tag_bw", "ucp_put_bw", "ucp_get"] {
            perftest(Some(transports), &["-t", test, "-s", size], count);
        }
    }
}

#[test]
fn ucx_over_rc() {
    protocols("rc_verbs,ud_verbs:aux");
}

#[test]
fn ucx_over_ud() {
    protocols("ud_verbs");
}

/// The transport alone, without UCX's protocols on top.
#[test]
fn ucx_transports() {
    let device = ["-d", "urxe0:1", "-x"];
    for (transport, args, count) in [
        ("rc_verbs", "-t put_bw -s 8", "200"),
        ("rc_verbs", "-t put_bw -s 1048576 -D zcopy", "10"),
        ("rc_verbs", "-t get -s 8 -D bcopy", "50"),
        ("rc_verbs", "-t get -s 1048576 -D zcopy", "10"),
        ("rc_verbs", "-t add_mr -s 8", "200"),
        ("rc_verbs", "-t fadd -s 8", "50"),
        ("rc_verbs", "-t cswap -s 8", "50"),
        ("ud_verbs", "-t am_lat -s 8", "50"),
    ] {
        let mut all = device.to_vec();
        all.push(transport);
        all.extend(args.split(' '));
        perftest(None, &all, count);
    }
}

/// UCX meets by the connection manager where a program listens at an address (`rdmacm`): io_demo, which comes with it,
/// and checks the data (`-q`) that its client writes to the server and reads back.
#[test]
fn ucx_by_addresses() {
    let (address, _) = addresses();
    let port = port();
    let end = |args: &str| {
        let mut command = launched("io_demo", "ucx-utils", address)?;
        command
            .args(["-p", &port, "-q", "-d", "65536"])
            .args(args.split_whitespace())
            .env("UCX_TLS", "rc_verbs,ud_verbs:aux")
            .env("UCX_NET_DEVICES", "urxe0:1")
            .env("UCX_SOCKADDR_TLS_PRIORITY", "rdmacm");
        Some(command)
    };
    let Some(server) = end("") else {
        return;
    };
    let _alone = alone();
    // It serves until it is ended.
    let mut server = Talking::start(server);
    server.wait_for("started listener");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let number: u16 = port.parse().expect("a number");
    let by_tcp = format!(":{number:04X} 00000000:0000 0A");
    assert!(!table.contains(&by_tcp), "it listens by TCP");
    let client = run(end(&format!("-i 100 -o read,write {address}")).expect("it was there"));
    drop(server);
    assert_eq!(client.code, Some(0), "{client:?}");
    let ended = client.text.contains("Client exit with status 'OK'");
    assert!(ended, "{client:?}");
}

#[test]
fn libfabric_lists_the_datagram_endpoint() {
    let (address, _) = addresses();
    let Some(mut command) = launched("fi_info", "libfabric-bin", address) else {
        return;
    };
    command.args(["-p", "verbs", "-t", "FI_EP_DGRAM"]);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.text.contains("urxe0-dgram"), "{ran:?}");
}

#[test]
fn fi_pingpong_over_datagrams() {
    let (address, _) = addresses();
    let port = port();
    let start = || {
        let mut command = launched("fi_pingpong", "libfabric-bin", address)?;
        let args = ["-p", "verbs", "-e", "dgram", "-d", "urxe0-dgram"];
        command.args(args).args(["-I", "200", "-S", "1024", "-c"]);
        Some(command)
    };
    let (Some(mut server), Some(mut client)) = (start(), start()) else {
        return;
    };
    server.args(["-B", &port]);
    client.args(["-P", &port, "127.0.0.1"]);
    let (server, client) = pair(server, client, &port);
    for Ran { code, text } in [server, client] {
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("200"), "{text}");
    }
}

/// An interface that is not loopback, and its address: libfabric offers no other for connections.
fn interface() -> Option<(String, Ipv4Addr)> {
    let devices = urxe::devices().expect("interfaces can be listed");
    let found = devices.iter().find_map(|device| {
        let v4 = |addr: &IpAddr| match addr {
            IpAddr::V4(addr) if !addr.is_loopback() => Some(*addr),
            _ => None,
        };
        let addr = device.addresses().iter().find_map(v4)?;
        Some((device.interface().to_owned(), addr))
    });
    if found.is_none() {
        println!("skipped: no interface beside loopback has an IPv4 address");
    }
    found
}

/// Message endpoints connect by the connection manager, and datagrams that are reliable are made of those.
#[test]
fn fi_pingpong_over_connections() {
    let Some((_, address)) = interface() else {
        return;
    };
    for (provider, endpoint) in [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")] {
        let port = port();
        let start = || {
            let mut command = launched("fi_pingpong", "libfabric-bin", address)?;
            command
                .args(["-p", provider, "-e", endpoint])
                .args(["-I", "200", "-S", "1024", "-c"]);
            Some(command)
        };
        let (Some(mut server), Some(mut client)) = (start(), start()) else {
            return;
        };
        server.args(["-B", &port]);
        client.args(["-P", &port, &address.to_string()]);
        let (server, client) = pair(server, client, &port);
        for Ran { code, text } in [server, client] {
            assert_eq!(code, Some(0), "{provider} {endpoint}: {text}");
            assert!(text.contains("200"), "{provider} {endpoint}: {text}");
        }
    }
}
