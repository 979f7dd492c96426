//! A server that says back what it hears, with a task for each client; and a client.

use core::time::Duration;
use std::net::SocketAddr;

use fabric_sim::program::task;
use urxe::cm::{CmError, ConnectBuilder, Connection, Listener};
use urxe::{Access, CqStream, Error, Mr, RecvWr, SendWr};

/// What a client says.
pub(crate) const MESSAGES: u64 = 4;

/// One end: a receive is posted, and memory for it.
struct Speaker {
    connection: Connection,
    completions: CqStream,
    memory: Mr,
}

impl Speaker {
    fn new(connection: Connection) -> Result<Speaker, Error> {
        let memory = connection
            .pd()
            .reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
        let speaker = Speaker {
            completions: connection.completions()?,
            connection,
            memory,
        };
        speaker.listen()?;
        Ok(speaker)
    }

    fn listen(&self) -> Result<(), Error> {
        let sges = [self.memory.sge(..)];
        self.connection.qp().post_recv(&RecvWr::new(1, &sges))
    }

    fn say(&self, text: &[u8]) -> Result<(), Error> {
        let send = SendWr::send_inline(2, text);
        self.connection.qp().post_send(&send)
    }

    /// The next message; `None` when the peer has ended the connection.
    async fn hear(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let wc = self.completions.next().await?;
        let wc = match self.connection.check(wc) {
            Err(error) if error.cm() == Some(CmError::Closed) => return Ok(None),
            checked => checked?,
        };
        let mut text = vec![0; wc.byte_len as usize];
        self.memory.read(0, &mut text);
        self.listen()?;
        Ok(Some(text))
    }
}

/// Says back what it hears, until the peer leaves.
async fn echo(connection: Connection) -> Result<u64, Error> {
    let mut speaker = Speaker::new(connection)?;
    let mut heard = 0;
    while let Some(text) = speaker.hear().await? {
        speaker.say(&text)?;
        heard += 1;
    }
    Ok(heard)
}

/// Serves so many clients, and returns how many messages there were.
pub(crate) async fn serve(listener: Listener, clients: u32) -> Result<u64, Error> {
    let mut guests = Vec::new();
    for _ in 0..clients {
        guests.push(task::spawn(echo(listener.accept_async().await?)));
    }
    let mut heard = 0;
    for guest in guests {
        heard += guest.await.expect("it is not aborted")?;
    }
    Ok(heard)
}

/// Says something, and hears the same.
pub(crate) async fn visit(
    server: SocketAddr,
    from: Option<SocketAddr>,
    name: u32,
) -> Result<(), Error> {
    let mut builder = ConnectBuilder::new(server).timeout(Duration::from_secs(100));
    if let Some(from) = from {
        builder = builder.from(from);
    }
    let mut speaker = Speaker::new(builder.connect_async().await?)?;
    for number in 0..MESSAGES {
        let text = format!("{name}: {number}");
        speaker.say(text.as_bytes())?;
        let echo = speaker.hear().await?.expect("the server stays");
        assert_eq!(String::from_utf8_lossy(&echo), text);
    }
    Ok(())
}
