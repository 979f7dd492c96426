//! Whole connections for programs that run on tokio (feature `tokio`).

use super::connection::{ConnectBuilder, Connection, Listener};
use crate::error::Error;
use crate::stream::CqStream;

impl ConnectBuilder {
    /// [`ConnectBuilder::connect`] for tasks. A task that is cancelled meanwhile takes the request back.
    ///
    /// # Errors
    /// See [`ConnectBuilder::connect`]; and if the runtime cannot watch the channel of events.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if that has no I/O or time driver.
    pub async fn connect_async(self) -> Result<Connection, Error> {
        let mut asked = self.ask()?;
        let to = asked.to;
        let what = || format!("a connection to {to}");
        let mut events = asked.channel.clone().into_stream_for(what)?;
        loop {
            let event = events.next_within(asked.patience()).await?;
            if let Some(private_data) = asked.answer(event)? {
                return Ok(asked.established(private_data));
            }
        }
    }
}

impl Listener {
    /// [`Listener::accept`] for tasks, one at a time. A task that is cancelled meanwhile has lost no peer.
    ///
    /// # Errors
    /// If the runtime cannot watch the channel of events.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if that has no I/O driver.
    pub async fn accept_async(&self) -> Result<Connection, Error> {
        let what = || format!("a connection from a peer at {}", self.local_addr());
        let mut events = self.channel().clone().into_stream_for(what)?;
        loop {
            let event = events.next().await?;
            if let Some(connection) = self.take(&event) {
                return Ok(connection);
            }
        }
    }
}

impl Connection {
    /// Its completions as a stream; [`Connection::check`] says of a failed one whether the peer ended the connection.
    ///
    /// # Errors
    /// If there is such a stream already, or the runtime cannot watch the queue.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if that has no I/O driver.
    pub fn completions(&self) -> Result<CqStream, Error> {
        CqStream::of(self.cq())
    }
}
