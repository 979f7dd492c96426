//! The control connection between the two processes of a measurement: one JSON value a line over TCP.
//!
//! It carries what verbs programs exchange out of band (endpoints, keys) and start, stop and results. It also
//! shows when the peer is gone: each wait in a measurement looks at it, so that a killed peer ends both sides.

use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::error::{CliError, Context};

/// The TCP port that verbs tools use to exchange endpoints.
pub(crate) const PORT_DEFAULT: u16 = 18515;

/// No message is near this long: a peer that sends more is not one of ours.
const LINE_LEN_MAX: u64 = 64 << 10;

/// How long the peer may take to answer where it has only set-up work to do.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(20);

const ENDPOINTS_A_LINE: usize = 200;

#[derive(Serialize, Deserialize)]
enum Line<T> {
    Message(T),
    /// Something went wrong on that side: it ends.
    Fault(String),
}

/// One end of the control connection.
#[derive(Debug)]
pub(crate) struct Control {
    reader: BufReader<TcpStream>,
    /// A line that came before it was asked for.
    early: Option<Vec<u8>>,
    /// What the peer is, for messages: "the server", "the client".
    peer: &'static str,
}

/// Opens the listening side; port 0 takes a free one.
pub(crate) fn listen(address: IpAddr, port: u16) -> Result<TcpListener, CliError> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => " (another one is running there: choose a --port)",
            io::ErrorKind::AddrNotAvailable => " (not an address of this host)",
            _ => "",
        };
        CliError::Failed(format!("cannot listen on {address}: {error}{hint}"))
    })
}

/// What a server prints first, for a program that started it and waits for it.
const ANNOUNCEMENT: &str = "urxe: waiting for the client on port ";

/// Tells where this server listens, on stdout: a person starts the client then, and a parent process too.
pub(crate) fn announce(listener: &TcpListener) -> Result<(), CliError> {
    let port = listener.local_addr()?.port();
    let mut stdout = io::stdout();
    writeln!(stdout, "{ANNOUNCEMENT}{port}")?;
    Ok(stdout.flush()?)
}

pub(crate) fn announced_port(line: &str) -> Result<u16, CliError> {
    let port = line
        .strip_prefix(ANNOUNCEMENT)
        .and_then(|port| port.parse().ok());
    port.ok_or_else(|| CliError::Failed(format!("the server process said {line:?}")))
}

pub(crate) fn accept(listener: &TcpListener) -> Result<Control, CliError> {
    let (stream, _) = listener.accept().context("cannot accept")?;
    Control::new(stream, "the client")
}

/// Connects to the server, from `local` when it is given; messages call the server `peer`.
pub(crate) fn connect(
    peer: &'static str,
    server: IpAddr,
    port: u16,
    local: Option<IpAddr>,
) -> Result<Control, CliError> {
    let server = SocketAddr::new(server, port);
    let attempt = || {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        if let Some(local) = local {
            socket.bind(&SocketAddr::new(local, 0).into())?;
        }
        socket.connect_timeout(&server.into(), ANSWER_MAX)?;
        io::Result::Ok(TcpStream::from(socket))
    };
    let stream = attempt().map_err(|error| {
        let hint = "is `urxe` with --server running there?";
        CliError::Failed(format!("cannot connect to {server}: {error} ({hint})"))
    })?;
    Control::new(stream, peer)
}

impl Control {
    fn new(stream: TcpStream, peer: &'static str) -> Result<Control, CliError> {
        let setup = || {
            stream.set_nodelay(true)?;
            // A peer host that dies sends no FIN: keepalive ends the connection within about 15 seconds.
            let keepalive = TcpKeepalive::new()
                .with_time(Duration::from_secs(5))
                .with_interval(Duration::from_secs(2))
                .with_retries(5);
            SockRef::from(&stream).set_tcp_keepalive(&keepalive)
        };
        setup().context("cannot set up the connection")?;
        Ok(Control {
            reader: BufReader::new(stream),
            early: None,
            peer,
        })
    }

    /// The address of this host on the way to the peer.
    pub(crate) fn local_ip(&self) -> Result<IpAddr, CliError> {
        let address = self.reader.get_ref().local_addr();
        Ok(address.context("no local address")?.ip())
    }

    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> Result<(), CliError> {
        self.send_line(&Line::Message(message))
    }

    /// Says that this side ends, and why: what the other side's [`Control::recv`] returns as its error.
    pub(crate) fn send_fault(&mut self, error: &CliError) -> Result<(), CliError> {
        self.send_line(&Line::<()>::Fault(error.to_string()))
    }

    /// Sends endpoints, however many, to the other side's [`Control::recv_endpoints`].
    pub(crate) fn send_endpoints(&mut self, endpoints: &[String]) -> Result<(), CliError> {
        let mut parts = endpoints.chunks(ENDPOINTS_A_LINE);
        parts.try_for_each(|part| self.send(&part))
    }

    pub(crate) fn recv_endpoints(&mut self, count: usize) -> Result<Vec<String>, CliError> {
        let mut endpoints = Vec::with_capacity(count);
        while endpoints.len() < count {
            endpoints.extend(self.recv::<Vec<String>>(Some(ANSWER_MAX))?);
        }
        Ok(endpoints)
    }

    fn send_line<T: Serialize>(&mut self, line: &Line<T>) -> Result<(), CliError> {
        let mut line = serde_json::to_string(line).expect("control messages are plain data");
        line.push('\n');
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .map_err(|error| self.lost(&error))
    }

    /// The next message; an error when none comes within `limit` (`None`: as long as the peer lives).
    pub(crate) fn recv<T: DeserializeOwned>(
        &mut self,
        limit: Option<Duration>,
    ) -> Result<T, CliError> {
        let line = match self.early.take() {
            Some(line) => line,
            None => self.recv_line(limit)?,
        };
        self.read(&line)
    }

    fn recv_line(&mut self, limit: Option<Duration>) -> Result<Vec<u8>, CliError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut line = Vec::new();
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(CliError::Failed(format!("{} does not answer", self.peer)));
            }
            let set = self.reader.get_ref().set_read_timeout(left);
            set.map_err(|error| self.lost(&error))?;
            let room = LINE_LEN_MAX - line.len() as u64;
            match (&mut self.reader).take(room).read_until(b'\n', &mut line) {
                Ok(_) if line.last() == Some(&b'\n') => return Ok(line),
                Ok(_) if line.len() as u64 == LINE_LEN_MAX => {
                    return Err(CliError::Failed(format!(
                        "{} sends no messages of urxe",
                        self.peer
                    )));
                }
                Ok(_) => return Err(self.gone()),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T, CliError> {
        let peer = self.peer;
        let read = serde_json::from_slice(line);
        match read.context(format_args!(
            "{peer} sent something unexpected (another version of urxe?)"
        ))? {
            Line::Message(message) => Ok(message),
            Line::Fault(text) => Err(CliError::Failed(format!("{peer} failed: {text}"))),
        }
    }

    /// Within a run, looks whether the peer still lives. A message that comes early is kept for [`Control::recv`].
    pub(crate) fn check(&mut self) -> Result<(), CliError> {
        if self.early.is_none() && self.has_news() {
            let line = self.recv_line(Some(ANSWER_MAX))?;
            self.read::<IgnoredAny>(&line)?;
            self.early = Some(line);
        }
        Ok(())
    }

    /// As [`Control::check`], where the peer has nothing to say but that it gives up.
    pub(crate) fn check_silent(&mut self) -> Result<(), CliError> {
        if !self.has_news() {
            return Ok(());
        }
        self.recv::<IgnoredAny>(Some(ANSWER_MAX))?;
        Err(CliError::Failed(format!("{} gave up", self.peer)))
    }

    /// Waits for this message, and no other.
    pub(crate) fn expect<T>(&mut self, expected: &T) -> Result<(), CliError>
    where
        T: DeserializeOwned + Debug + PartialEq,
    {
        let message: T = self.recv(Some(ANSWER_MAX))?;
        if message != *expected {
            return Err(self.out_of_turn(&message));
        }
        Ok(())
    }

    /// For a message that is not what is due now.
    pub(crate) fn out_of_turn(&self, message: &dyn Debug) -> CliError {
        CliError::Failed(format!("{} sent {message:?} out of turn", self.peer))
    }

    /// Whether a message, or the end of the connection, is waiting to be read. Never blocks.
    pub(crate) fn has_news(&mut self) -> bool {
        if !self.reader.buffer().is_empty() {
            return true;
        }
        let stream = self.reader.get_ref();
        let mut byte = [0];
        let peeked = stream
            .set_nonblocking(true)
            .and_then(|()| stream.peek(&mut byte));
        let restored = stream.set_nonblocking(false);
        restored.is_err() || !matches!(peeked, Err(error) if is_timeout(&error))
    }

    fn gone(&self) -> CliError {
        CliError::Failed(format!(
            "{} went away: its process ended or was killed",
            self.peer
        ))
    }

    fn lost(&self, error: &io::Error) -> CliError {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => self.gone(),
            _ => CliError::context(format!("the connection to {} failed", self.peer), error),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::WouldBlock,
        io::ErrorKind::TimedOut,
        io::ErrorKind::Interrupted,
    ];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::net::Ipv4Addr;

    use super::*;

    fn pair() -> (Control, Control) {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = listen(localhost, 0).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let client = connect("the server", localhost, port, None).expect("the listener is there");
        (client, accept(&listener).expect("a client is there"))
    }

    #[test]
    fn messages_arrive_in_order() {
        let (mut client, mut server) = pair();
        assert!(!server.has_news());
        client.send(&1).expect("connected");
        client.send(&"two").expect("connected");
        assert_eq!(server.recv::<u32>(Some(ANSWER_MAX)).expect("sent"), 1);
        assert!(server.has_news());
        assert_eq!(server.recv::<String>(None).expect("sent"), "two");
        assert!(!server.has_news());
    }

    #[test]
    fn a_peer_that_went_away_is_news_and_an_error() {
        let (client, mut server) = pair();
        drop(client);
        let error = server
            .recv::<u32>(Some(ANSWER_MAX))
            .expect_err("nobody is there");
        assert_eq!(
            error.to_string(),
            "the client went away: its process ended or was killed"
        );
        assert!(server.has_news());
    }

    #[test]
    fn a_fault_is_the_error_of_the_other_side() {
        let (mut client, mut server) = pair();
        let fault = CliError::Failed("no device".to_owned());
        server.send_fault(&fault).expect("connected");
        let error = client.expect(&1).expect_err("a fault came");
        assert_eq!(error.to_string(), "the server failed: no device");
        client.send(&2).expect("connected");
        let error = server.expect(&1).expect_err("another message came");
        assert_eq!(error.to_string(), "the client sent 2 out of turn");
    }

    #[test]
    fn a_message_that_comes_early_is_kept_and_a_fault_ends_the_wait() {
        let (mut client, mut server) = pair();
        client.check().expect("the server lives");
        server.send(&1).expect("connected");
        while client.early.is_none() {
            client.check().expect("the server lives");
        }
        assert_eq!(client.recv::<u32>(None).expect("kept"), 1);
        let fault = CliError::Failed("no device".to_owned());
        server.send_fault(&fault).expect("connected");
        let error = iter::repeat_with(|| client.check()).find_map(Result::err);
        let error = error.expect("a fault came").to_string();
        assert_eq!(error, "the server failed: no device");
        client.send(&2).expect("connected");
        let error = iter::repeat_with(|| server.check_silent()).find_map(Result::err);
        let error = error.expect("a message came").to_string();
        assert_eq!(error, "the client gave up");
    }

    #[test]
    fn endpoints_come_in_order_however_many() {
        let (mut client, mut server) = pair();
        let endpoints: Vec<String> = (0..450).map(|number: u32| number.to_string()).collect();
        client.send_endpoints(&endpoints).expect("connected");
        assert_eq!(server.recv_endpoints(450).expect("sent"), endpoints);
    }

    #[test]
    fn a_silent_peer_is_not_waited_for_forever() {
        let (mut client, _server) = pair();
        let error = client
            .recv::<u32>(Some(Duration::from_millis(20)))
            .expect_err("silence");
        assert_eq!(error.to_string(), "the server does not answer");
    }

    #[test]
    fn a_stranger_is_refused() {
        let (mut client, mut server) = pair();
        client
            .reader
            .get_mut()
            .write_all(b"GET / HTTP/1.1\r\n")
            .expect("connected");
        assert!(server.recv::<u32>(Some(ANSWER_MAX)).is_err());
        client
            .reader
            .get_mut()
            .write_all(&[b'x'; 70 << 10])
            .expect("connected");
        let error = server
            .recv::<u32>(Some(ANSWER_MAX))
            .expect_err("no line ends");
        assert_eq!(error.to_string(), "the client sends no messages of urxe");
    }
}
