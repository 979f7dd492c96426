//! rsockets: the programs that come with librdmacm, and an ordinary program with sockets under `librspreload.so`.

use std::fs;
use std::path::Path;

use crate::c_program::{Compiled, compile};
use crate::cm_ends::{Talking, cm_ends, command, start};
use crate::ends::{User, alone};
use crate::harness::{addresses, port, program, run, urxe};

const UTILS: &str = "rdmacm-utils";
/// Debian's, from the package librdmacm1.
const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

fn utils(user: User, name: &str, options: &str) {
    let server = format!("{name} -b ADDR -p PORT {options}");
    let client = format!("{name} -s ADDR -p PORT {options}");
    cm_ends(user, UTILS, &server, &client);
}

/// Blocking, not blocking, polling; with data that is checked; all sizes.
#[test]
fn rstream_in_every_mode() {
    for options in [
        "-T v -I 20 -C 2 -S 100000",
        "-T b -T v -I 20 -C 2 -S 65536",
        "-T n -T v -I 20 -C 2 -S 30000",
        "-T a -T v -I 20 -C 2 -S 30000",
        "-T b -I 50 -C 1 -S 8",
        "-B 8192 -T v -I 5 -C 3 -S 200000",
    ] {
        utils(User::Myself, "rstream", options);
    }
}

/// What the server sends before the client said that it is ready may find a QP that does not receive yet: the kernel's
/// drops it in silence, and its repetition comes a second later. Through sockets, as it comes from another host: in memory the
/// client's first message may come before its RTU.
#[test]
fn nothing_is_sent_before_the_peer_is_ready() {
    let file = std::env::temp_dir().join(format!("urxe-rtu-{}.pcapng", std::process::id()));
    let server = format!(
        "env URXE_WIRE=sockets URXE_PCAP={} rstream -b ADDR -p PORT -C 5 -S 4096",
        file.display()
    );
    let client = "rstream -s ADDR -p PORT -C 5 -S 4096";
    let ran = command(User::Myself, UTILS, client, "0")
        .and_then(|_| cm_ends(User::Myself, "coreutils", &server, client));
    if ran.is_none() {
        return;
    }
    let mut decode = urxe();
    decode.arg("decode").arg(&file);
    let decoded = run(decode);
    fs::remove_file(&file).expect("the server wrote it");
    let first = |what: &str| {
        let found = decoded.text.lines().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in {}", decoded.text))
    };
    // What the client sent after it may be here before it: the RTU can come to the client's own process, which hands it over.
    let request = decoded.text.lines().nth(first(" REQ ")).expect("found");
    let client = request.rsplit_once(" QPN ").expect("of the client").1;
    let client = client.split(' ').next().expect("one word");
    let sent = format!(": RC RDMA WRITE Only with Immediate QPN {client} ");
    assert!(first(" RTU ") < first(&sent), "{}", decoded.text);
}

/// All that it does by itself.
#[test]
fn rstream_as_it_comes() {
    utils(User::Myself, "rstream", "-T v -I 20 -C 1 -S all");
}

/// Its memory is mapped, and written to directly.
#[test]
fn riostream_in_every_mode() {
    for options in [
        "-T v -I 20 -C 2 -S 50000",
        "-T a -T v -I 20 -C 2 -S 10000",
        "-T n -I 20 -C 2 -S 10000",
    ] {
        utils(User::Myself, "riostream", options);
    }
}

#[test]
fn udpong_exchanges_datagrams() {
    let _alone = alone();
    for options in ["-T e -C 50 -S 100", "-C 50 -S 900"] {
        let port = port();
        let line = |end: &str| format!("stdbuf -oL udpong {end} ADDR -p PORT {options}");
        if command(User::Myself, UTILS, "udpong", &port).is_none() {
            return;
        }
        let of =
            |end: &str| command(User::Myself, "coreutils", &line(end), &port).expect("it is there");
        // The server does not end, nor say that it is there: what is sent before is lost, and the client ends all
        // the same.
        let server = Talking::start(of("-b"));
        let client = run(of("-s"));
        drop(server);
        assert_eq!(client.code, Some(0), "{options}: {}", client.text);
    }
}

#[test]
fn rcopy_copies_64_mib() {
    let folder = std::env::temp_dir().join(format!("urxe-rcopy-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (from, to) = (folder.join("from"), folder.join("to"));
    let mut state = 1_u64;
    let bytes: Vec<u8> = (0..64 << 20)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    fs::write(&from, &bytes).expect("room for it");
    let _alone = alone();
    let port = port();
    if let Some(server) = command(User::Myself, UTILS, "rcopy -p PORT", &port) {
        // The server serves until it is ended.
        let server = Talking::start(server);
        let line = format!("rcopy {} ADDR:{} -p PORT", from.display(), to.display());
        let client = command(User::Myself, UTILS, &line, &port).expect("it is there");
        let mut ran = run(client);
        for _ in 0..100 {
            if ran.code == Some(0) {
                break;
            }
            // There was no listener yet.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let client = command(User::Myself, UTILS, &line, &port).expect("it is there");
            ran = run(client);
        }
        drop(server);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            fs::read(&to).expect("it was copied") == bytes,
            "the copy differs"
        );
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn as_an_ordinary_user() {
    if User::Nobody.is_available() {
        utils(User::Nobody, "rstream", "-T v -I 20 -C 2 -S 10000");
    }
}

/// epoll over rsockets, which the newest preload library makes of the system's: by levels and by edges.
#[test]
fn repoll_serves_connections_and_other_descriptors() {
    let Some(compiled) = compile("abi/repoll.c", &["-lrdmacm", "-ldl", "-lpthread"]) else {
        return;
    };
    let _alone = alone();
    for mode in ["level", "edge"] {
        let address = addresses().0;
        let mut command = program(&compiled.binary, "gcc", address).expect("it was just made");
        command.args([&address.to_string(), &port(), mode]);
        let ran = run(command);
        assert_eq!(ran.code, Some(0), "{mode}: {}", ran.text);
        assert!(ran.text.contains("all came back"), "{mode}: {}", ran.text);
    }
}

/// Starts both sides of alive.c, and returns them once they are connected: the one that goes, and the one that waits.
fn alive(
    compiled: &Compiled,
    (server, client): (&str, &str),
    by_sockets: bool,
) -> (Talking, Talking) {
    let (address, port) = (addresses().0, port());
    let start = |role: &str, heard: &str| {
        let mut command = program(&compiled.binary, "gcc", address).expect("it was just made");
        command.args([role, &address.to_string(), &port]);
        if by_sockets {
            command.env("URXE_WIRE", "sockets");
        }
        let mut talking = Talking::start(command);
        talking.wait_for(heard);
        talking
    };
    let server_waits = server.contains('-');
    let mut server = start(server, "listening");
    let client = start(client, if server_waits { "asleep" } else { "up" });
    // It has accepted.
    server.wait_for(if server_waits { "up" } else { "asleep" });
    if server_waits {
        (client, server)
    } else {
        (server, client)
    }
}

/// A side that only waits, of a peer that says nothing any more: without signs of life it would wait for ever.
#[test]
fn keep_alive_finds_out_that_the_peer_is_silent() {
    let Some(compiled) = compile("abi/alive.c", &["-lrdmacm"]) else {
        return;
    };
    for roles in [("serve", "wait"), ("serve-alive", "sleep")] {
        // Through memory a process that is stopped is waited for.
        let (goes, waits) = alive(&compiled, roles, true);
        goes.stop();
        let ran = waits.finish();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.text.contains("-1 Connection timed out"), "{ran:?}");
        drop(goes);
    }
}

/// Without signs of life: others at the address say it, here the one that waits itself.
#[test]
fn a_side_that_only_waits_hears_that_its_peer_was_killed() {
    let Some(compiled) = compile("abi/alive.c", &["-lrdmacm"]) else {
        return;
    };
    for by_sockets in [false, true] {
        for roles in [("serve", "wait-plain"), ("serve-plain", "sleep")] {
            let (goes, waits) = alive(&compiled, roles, by_sockets);
            drop(goes);
            let ran = waits.finish();
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert!(ran.text.contains("\n0 \n"), "{ran:?}");
        }
    }
}

/// The same while rsockets' own words are under way, which no answer comes to: none of what the program sent is lost.
#[test]
fn a_side_that_only_waits_has_lost_nothing_if_its_peer_was_killed() {
    let Some(compiled) = compile("abi/alive.c", &["-lrdmacm"]) else {
        return;
    };
    for by_sockets in [false, true] {
        for roles in [("serve", "wait-late"), ("serve-late", "sleep")] {
            let (goes, mut waits) = alive(&compiled, roles, by_sockets);
            goes.stop();
            waits.go_on();
            waits.wait_for("late");
            drop(goes);
            let ran = waits.finish();
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert!(ran.text.contains("\n0 \n"), "{ran:?}");
        }
    }
}

/// A program that knows sockets alone: both ends under the preload library, one of them under `urxe run` too.
#[test]
fn an_ordinary_program_under_the_preload_library() {
    const BYTES: &str = "104857600";
    if !Path::new(PRELOAD).exists() {
        println!("skipped: {PRELOAD} is missing (apt-get install librdmacm1)");
        return;
    }
    let Some(compiled) = compile("abi/sockets.c", &[]) else {
        return;
    };
    let _alone = alone();
    let (address, port) = (addresses().0, port());
    let host = address.to_string();
    let plain = || {
        let mut command = program(&compiled.binary, "gcc", address).expect("it was just made");
        command.env("LD_PRELOAD", PRELOAD);
        command
    };
    let mut server = plain();
    server.args(["serve", &port, BYTES]);
    let server = start(server);
    let mut tries = 0;
    let client = loop {
        let mut client = urxe();
        client
            .env("LD_PRELOAD", PRELOAD)
            .args(["run", "--device", &host, "--", &compiled.binary])
            .args(["send", &host, &port, BYTES]);
        let ran = run(client);
        // 3: no listener yet.
        if ran.code != Some(3) || server.is_finished() || tries > 200 {
            break ran;
        }
        let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let number: u16 = port.parse().expect("a number");
        assert!(
            !table.contains(&format!(":{number:04X} 00000000:0000 0A")),
            "it listens by TCP"
        );
        tries += 1;
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let server = server.join().expect("it does not panic");
    assert_eq!(client.code, Some(0), "{client:?} {server:?}");
    assert_eq!(server.code, Some(0), "{server:?}");
}
