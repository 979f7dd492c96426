//! A ping-pong over RDMA-CM: a listener that hands each peer over to an agent, and a client.
//!
//! `cargo run -p urxe --example cm_pingpong -- listen ADDRESS:PORT`
//! `cargo run -p urxe --example cm_pingpong -- connect ADDRESS:PORT [ROUNDS]`
//!
//! Without arguments both ends are threads of this process, on loopback.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use urxe::cm::{CmError, ConnectBuilder, Connection, Listener, listen};
use urxe::{Access, Error, ErrorKind, Mr, RecvWr, SendWr};

/// Bytes of a message.
const LEN: usize = 64;
/// A peer that is silent for so long is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// One end of the table: a connection, and memory for one message each way.
struct Player {
    connection: Connection,
    out: Mr,
    back: Mr,
}

impl Player {
    fn new(connection: Connection) -> Result<Player, Error> {
        let out = connection.pd().reg_owned(vec![0; LEN], Access::NONE)?;
        let back = connection
            .pd()
            .reg_owned(vec![0; LEN], Access::LOCAL_WRITE)?;
        let player = Player {
            connection,
            out,
            back,
        };
        // The first ball may come as soon as the connection is there.
        player.expect()?;
        Ok(player)
    }

    /// Makes ready for one message.
    fn expect(&self) -> Result<(), Error> {
        let qp = self.connection.qp();
        qp.post_recv(&RecvWr::new(1, &[self.back.sge(..)]))
    }

    fn send(&self, text: &str) -> Result<(), Error> {
        self.out.write(0, text.as_bytes());
        let qp = self.connection.qp();
        qp.post_send(&SendWr::send(2, &[self.out.sge(..text.len())]))
    }

    /// The next message; none when the peer has gone.
    fn receive(&self) -> Result<Option<String>, Error> {
        let wc = match self.connection.wait(PATIENCE) {
            Ok(Some(wc)) => wc,
            Err(error) if error.kind() == &ErrorKind::Cm(CmError::Closed) => return Ok(None),
            Ok(None) => return Err(CmError::TimedOut.into()),
            Err(error) => return Err(error),
        };
        let mut text = vec![0; wc.byte_len as usize];
        self.back.read(0, &mut text);
        self.expect()?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Serves one peer until it goes.
fn agent(connection: Connection) -> Result<(), Error> {
    let peer = connection.id().peer_addr();
    let player = Player::new(connection)?;
    let mut rounds = 0;
    while let Some(text) = player.receive()? {
        player.send(&text.replace("ping", "pong"))?;
        rounds += 1;
    }
    println!("{rounds} rounds with {peer:?}");
    Ok(())
}

/// Hands every peer over to an agent of its own; `limit` of them, or for ever.
fn serve(listener: &Listener, limit: Option<usize>) -> Result<(), Error> {
    println!("listening at {}", listener.local_addr());
    let mut agents = Vec::new();
    while limit.is_none_or(|limit| agents.len() < limit) {
        let connection = listener.accept()?;
        agents.push(thread::spawn(move || {
            if let Err(error) = agent(connection) {
                eprintln!("{error}");
            }
        }));
    }
    for agent in agents {
        // It has reported what went wrong.
        let _ = agent.join();
    }
    Ok(())
}

fn play(builder: ConnectBuilder, rounds: u32) -> Result<(), Error> {
    let player = Player::new(builder.connect()?)?;
    for round in 0..rounds {
        player.send(&format!("ping {round}"))?;
        let answer = player.receive()?.unwrap_or_default();
        assert_eq!(answer, format!("pong {round}"));
    }
    println!("{rounds} rounds");
    player.connection.disconnect()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| {
        eprintln!("{text} is no ADDRESS:PORT");
        std::process::exit(2)
    })
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["listen", at] => serve(&listen(address(at))?, None),
        ["connect", to] => play(ConnectBuilder::new(address(to)), 1000),
        ["connect", to, rounds] => play(
            ConnectBuilder::new(address(to)),
            rounds.parse().unwrap_or(1),
        ),
        [] => {
            let listener = listen(address("127.0.20.1:0"))?;
            let to = listener.local_addr();
            let server = thread::spawn(move || serve(&listener, Some(1)));
            let from = address("127.0.20.2:0");
            play(ConnectBuilder::new(to).from(from), 1000)?;
            server.join().expect("the server does not panic")
        }
        _ => {
            eprintln!("usage: cm_pingpong [listen ADDRESS:PORT | connect ADDRESS:PORT [ROUNDS]]");
            std::process::exit(2)
        }
    }
}
