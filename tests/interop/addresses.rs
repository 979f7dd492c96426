//! Programs that connect by addresses (RDMA-CM), unchanged: on one side they run on urxe's drop-in library, on the other
//! on the kernel's connection manager.

use std::time::{Duration, Instant};

use crate::lab::{Lab, PATIENCE, Requester};
use crate::matrix::Row;
use crate::programs::{background, finish, finish_background, in_guest, start};
use crate::side::Result;

pub(crate) const ROWS: &[Row] = &[
    row("rping", |lab| {
        // Data that is verified; 64 KiB a time, printed; queue pairs that the program moves from state to state.
        let many = if lab.is_quick {
            "-v -C 20 -S 65535"
        } else {
            "-v -C 100 -S 65535"
        };
        let flags = ["-V -C 10", many, "-V -C 10 -q"];
        let ends = |flags: &str| Ends {
            server: format!("rping -s -a SERVER {flags}"),
            client: format!("rping -c -a SERVER {flags}"),
        };
        each(lab, &flags, ends)
    }),
    row("ucmatose", |lab| {
        // Ten connections at once; messages of several packets; migration to another channel.
        let flags = ["", "-c 10", "-c 2 -C 20 -S 20000", "-m"];
        each(lab, &flags, |flags| bound("ucmatose", flags))
    }),
    row("udaddy", |lab| {
        let flags = ["", "-c 4 -C 5 -S 1000"];
        each(lab, &flags, |flags| bound("udaddy", flags))
    }),
    row("rdma_client, rdma_server", |lab| {
        let ends = |_: &str| Ends {
            server: "rdma_server -s SERVER".to_owned(),
            client: "rdma_client -s SERVER".to_owned(),
        };
        each(lab, &[""], ends)
    }),
    row("rstream", |lab| {
        // As it comes, which is not blocking; then blocking, and bytes that are verified.
        let mut flags = vec!["-C 20 -S 4096"];
        if lab.requester == Requester::Urxe {
            // Polling. Not with the client on the distribution's librsocket: it takes the end of the connection, which
            // comes right behind the last bytes, for a failure, and a server that is faster than its client always
            // gets there first.
            flags.push("-T a -T v -C 20 -S 4096");
        }
        flags.push("-T b -T v -C 10 -S 30000");
        each(lab, &flags, |flags| socket("rstream", flags))
    }),
    row("riostream", |lab| {
        let flags = ["-C 20 -S 65536", "-T b -T v -C 5 -S 30000"];
        each(lab, &flags, |flags| socket("riostream", flags))
    }),
    row("mckey", groups),
    row("ib_send_bw -R", by_addresses),
    row("nobody listens", refused),
    row("the client is killed", killed),
];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "cm",
        operation,
        run,
    }
}

/// The command lines of both ends. `SERVER` and `CLIENT` stand for their addresses.
struct Ends {
    server: String,
    client: String,
}

/// A program that binds to an address, whichever end it is.
fn bound(program: &str, flags: &str) -> Ends {
    Ends {
        server: format!("{program} -b SERVER {flags}"),
        client: format!("{program} -b CLIENT -s SERVER {flags}"),
    }
}

/// A program that has sockets.
fn socket(program: &str, flags: &str) -> Ends {
    Ends {
        server: format!("{program} -b SERVER {flags}"),
        client: format!("{program} -s SERVER {flags}"),
    }
}

/// Once for each set of flags, in a quick run for the first two; both ends must end well.
fn each(lab: &mut Lab, flags: &[&str], ends: impl Fn(&str) -> Ends) -> Result<()> {
    lab.close()?;
    let count = if lab.is_quick { 2 } else { flags.len() };
    for flags in flags.iter().take(count) {
        let ends = ends(flags);
        exchange(lab, &ends).map_err(|e| format!("{}: {e}", ends.client))?;
        lab.cases += 1;
    }
    Ok(())
}

/// The addresses of server and client.
fn addresses(lab: &Lab) -> (String, String) {
    let (urxe, rxe) = (lab.hosts.0.to_string(), lab.hosts.1.to_string());
    match lab.requester {
        Requester::Urxe => (rxe, urxe),
        Requester::Rxe => (urxe, rxe),
    }
}

fn with_addresses(lab: &Lab, line: &str) -> String {
    let (server, client) = addresses(lab);
    line.replace("SERVER", &server).replace("CLIENT", &client)
}

fn exchange(lab: &mut Lab, ends: &Ends) -> Result<()> {
    let (server, client) = (
        with_addresses(lab, &ends.server),
        with_addresses(lab, &ends.client),
    );
    let urxe = lab.hosts.0;
    if lab.requester == Requester::Urxe {
        lab.guest(&format!("{} {LISTENS}", background(&server)))?;
        let client = start(&client, urxe).and_then(finish);
        return finish_background(lab, client);
    }
    let server = start(&server, urxe)?;
    let said = has_port().and_then(|()| until_it_listens(lab, &client));
    let server = finish(server);
    said?;
    server
}

/// Until a program in the guest listens by the connection manager.
const LISTENS: &str = "for i in $(seq 300); do rdma resource show cm_id | grep -q 'state LISTEN' && exit 0; sleep 0.1; done; exit 1";

/// Until urxe has the port here: before that there is not even a refusal.
fn has_port() -> Result<()> {
    let start = Instant::now();
    // Port 4791.
    let is_there = |table: &str| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| line.contains(":12B7 "))
    };
    while !is_there("/proc/net/udp") && !is_there("/proc/net/udp6") {
        if start.elapsed() > PATIENCE {
            return Err("nobody has port 4791 on urxe's side".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs the client in the guest. A server that has the port listens a moment later: a client that is refused until then tries
/// again.
fn until_it_listens(lab: &mut Lab, client: &str) -> Result<String> {
    let start = Instant::now();
    loop {
        let said = in_guest(lab, client);
        match said {
            Err(error) if is_refusal(&error) && start.elapsed() < PATIENCE => {}
            said => return said,
        }
    }
}

fn is_refusal(said: &str) -> bool {
    let words = ["REJECTED", "Connection refused", "CM event bl blka 8"];
    words.iter().any(|words| said.contains(words))
}

/// mckey: members of a group first, then the sender.
fn groups(lab: &mut Lab) -> Result<()> {
    if lab.hosts.0.is_ipv6() {
        // The kernel joins no group of IPv6 for RoCE v2: cma_iboe_join_multicast() answers ENOTSUPP ("failure joining:
        // Unknown error 524").
        return Ok(());
    }
    lab.close()?;
    let urxe = lab.hosts.0;
    let member = with_addresses(lab, "mckey -m 239.77.0.1 -b SERVER -C 5 -S 100");
    let sender = "mckey -m 239.77.0.1 -b CLIENT -s -S 100";
    let done = if lab.requester == Requester::Urxe {
        lab.guest(&format!("{} {IN_GROUP}", background(&member)))?;
        let sender = with_addresses(lab, &format!("{sender} -C 5"));
        // A member attaches its queue pair after it joined.
        let sent = until_done(lab, |lab| {
            start(&sender, urxe).and_then(finish)?;
            let done = lab.guest("[ ! -e /tmp/program.rc ] || echo done")?;
            Ok(!done.is_empty())
        });
        finish_background(lab, sent)
    } else {
        // Sending, rxe looks for the address handle, and mckey's sender destroys it as soon as its requests are
        // posted: of five messages none or one leaves, of a hundred most do.
        let sender = with_addresses(lab, &format!("{sender} -C 100"));
        let mut member = start(&member, urxe)?;
        let sent = in_group().and_then(|()| {
            until_done(lab, |lab| {
                in_guest(lab, &sender)?;
                let end = member.child.try_wait().map_err(|e| e.to_string())?;
                Ok(end.is_some())
            })
        });
        if sent.is_err() {
            member.child.kill().map_err(|e| e.to_string())?;
        }
        let member = finish(member);
        sent.and(member)
    };
    done.map_err(|e| format!("mckey: {e}"))?;
    lab.cases += 1;
    Ok(())
}

/// Sends again until the member has what it waits for.
fn until_done(lab: &mut Lab, mut send: impl FnMut(&mut Lab) -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !send(lab)? {
        if start.elapsed() > PATIENCE {
            return Err("what is sent to the group does not arrive".to_owned());
        }
    }
    Ok(())
}

/// Until the guest is a member of the group, 239.77.0.1.
const IN_GROUP: &str =
    "for i in $(seq 300); do grep -q 01004DEF /proc/net/igmp && exit 0; sleep 0.1; done; exit 1";

/// Until urxe is.
fn in_group() -> Result<()> {
    let start = Instant::now();
    while !std::fs::read_to_string("/proc/net/igmp").is_ok_and(|table| table.contains("01004DEF")) {
        if start.elapsed() > PATIENCE {
            return Err("urxe does not join the group".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// perftest that connects by addresses. It connects twice, first to tell what it wants and then its queue pairs; the
/// second time the client does not know whether the server listens already. If it is refused it tries again with
/// identifiers that it has freed (`rdma_cm_client_connection` after `rdma_cm_destroy_cma`), which ends it. urxe asks
/// again by itself before it tells that it was refused; the kernel does not, so its client has to be the slower one.
/// Over IPv6 this perftest (4.5) finds no address ("Address family for hostname not supported").
fn by_addresses(lab: &mut Lab) -> Result<()> {
    let is_too_fast = lab.requester == Requester::Rxe && !lab.is_slow;
    if lab.hosts.0.is_ipv6() || is_too_fast {
        return Ok(());
    }
    let flags = ["-n 50 -s 4096", "-n 20 -q 4"];
    each(lab, &flags, |flags| Ends {
        server: format!("ib_send_bw -F -R {flags}"),
        client: format!("ib_send_bw -F -R {flags} SERVER"),
    })
}

/// A port without a listener: the client is refused at once, and a listener on another port is not disturbed.
fn refused(lab: &mut Lab) -> Result<()> {
    lab.close()?;
    let urxe = lab.hosts.0;
    let wrong = with_addresses(lab, "rping -c -a SERVER -p 9999 -C 1");
    let start_time = Instant::now();
    let said = if lab.requester == Requester::Urxe {
        // The kernel answers for all ports.
        let client = start(&wrong, urxe).and_then(finish);
        client.map(|()| String::new())
    } else {
        let server = start(&with_addresses(lab, "rping -s -a SERVER -V -C 3"), urxe)?;
        let said = has_port().and_then(|()| in_guest(lab, &wrong));
        let right = with_addresses(lab, "rping -c -a SERVER -V -C 3");
        let after = until_it_listens(lab, &right);
        finish(server)?;
        after?;
        said
    };
    match said {
        Err(said) if is_refusal(&said) && start_time.elapsed() < PATIENCE => {
            lab.cases += 1;
            Ok(())
        }
        said => Err(format!("nobody listens, and the client says {said:?}")),
    }
}

/// The kernel ends the connections of a process that is killed, and a server that polls is told of the end of its
/// stream (`POLLHUP`, with which rstream exits), not of an error a long time later. A process that is killed on urxe takes its
/// connection manager with it: the kernel is not told.
fn killed(lab: &mut Lab) -> Result<()> {
    if lab.requester == Requester::Urxe {
        return Ok(());
    }
    lab.close()?;
    let server = start(
        &with_addresses(lab, "rstream -b SERVER -T a -C 1000000"),
        lab.hosts.0,
    )?;
    // It would take much longer than two seconds.
    let client = with_addresses(lab, "timeout -s KILL 2 rstream -s SERVER -T b -C 1000000");
    let said = has_port().and_then(|()| until_it_listens(lab, &client));
    let Err(said) = said else {
        return Err("the client was not killed".to_owned());
    };
    let pollhup = format!("exit status: {}", 0x10);
    match finish(server) {
        Err(end) if end.contains(&pollhup) => {
            lab.cases += 1;
            Ok(())
        }
        end => Err(format!("the client: {said}; the server: {end:?}")),
    }
}
