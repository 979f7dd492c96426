//! An async server and its clients (`program.rs`), over real sockets or in a simulation:
//!
//! ```console
//! $ cargo run -p urxe-fabric-sim --features tokio --example echo
//! over sockets of this host: 12 messages
//! $ cargo run -p urxe-fabric-sim --features tokio --example echo -- --seed 7
//! in the simulated fabric: 12 messages in 4877.1 ms, with 4 frames lost
//! ```

mod program;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use fabric_sim::fault::Fault;
use fabric_sim::program::{Simulation, task};
use fabric_sim::{HostId, Time};
use program::{MESSAGES, serve, visit};
use urxe::cm;

const CLIENTS: u32 = 3;
const ALL: u64 = CLIENTS as u64 * MESSAGES;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seed = match &arguments[..] {
        [] => None,
        [name, seed] if name == "--seed" => seed.parse().ok(),
        _ => None,
    };
    let result = match seed {
        Some(seed) => in_simulation(seed),
        None if arguments.is_empty() => over_sockets(),
        None => {
            eprintln!("usage: echo [--seed N]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(words) => {
            println!("{words}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All of them as tasks of this process, on addresses of loopback.
fn over_sockets() -> Result<String, Box<dyn Error>> {
    task::block_on(async {
        let listener = cm::listen("127.81.3.1:0".parse()?)?;
        let to = listener.local_addr();
        let server = task::spawn(serve(listener, CLIENTS));
        for client in 0..CLIENTS {
            let from = format!("127.81.3.{}:0", client + 2).parse()?;
            visit(to, Some(from), client).await?;
        }
        let heard = server.await??;
        Ok(format!("over sockets of this host: {heard} messages"))
    })
}

/// Each on a host of its own, in a network that loses frames.
fn in_simulation(seed: u64) -> Result<String, Box<dyn Error>> {
    let mut sim = Simulation::new(seed);
    sim.fault(Fault::loss(0.02));
    let to = SocketAddr::new(sim.address(HostId(0)), 7471);
    sim.host(HostId(0), move || {
        let listener = cm::listen(to).expect("listens");
        let heard = task::block_on(serve(listener, CLIENTS));
        assert_eq!(heard.expect("serves"), ALL);
    });
    for client in 0..CLIENTS {
        sim.host(HostId(client + 1), move || {
            task::block_on(visit(to, None, client)).expect("has visited");
        });
    }
    let report = sim.run()?;
    let took_ms = report.ended_at().since(Time::ZERO).as_secs_f64() * 1e3;
    Ok(format!(
        "in the simulated fabric: {ALL} messages in {took_ms:.1} ms, with {} frames lost",
        report.drops().total()
    ))
}
