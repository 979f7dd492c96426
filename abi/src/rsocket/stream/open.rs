//! Binding, listening and connecting. For accepting see `accept.rs`.

use core::net::SocketAddr;
use core::time::Duration;

use urxe::cm::{CmOption, ConnParam, Event, EventKind, Id};

use super::accept::ANSWERED_MAX;
use super::connection::Connection;
use super::{Guard, Phase, State, Stream};
use crate::cm::manager::source_for;
use crate::errno::Errno;
use crate::rsocket::settings::Settings;
use crate::rsocket::wire::ConnData;

/// The time-out for addresses and routes.
const TIMEOUT: Duration = Duration::from_secs(2);
/// What RNR NAKs ask for: 0.64 ms. Only messages about credits ever find no receive.
const MIN_RNR_TIMER: u8 = 12;

impl Stream {
    pub(in super::super) fn bind(&self, addr: SocketAddr) -> Result<(), Errno> {
        Ok(self.lock().id.bind_addr(addr)?)
    }

    pub(in super::super) fn listen(&self, backlog: u32) -> Result<(), Errno> {
        let mut state = self.lock();
        if state.phase != Phase::Listening {
            // The program counts those that are there, and those that only ask wait here too.
            state.id.listen(backlog.max(ANSWERED_MAX as u32))?;
            state.phase = Phase::Listening;
        }
        Ok(())
    }

    /// `EINPROGRESS` if the program does not wait; then it polls.
    pub(in super::super) fn connect(&self, addr: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock();
        match state.phase {
            Phase::Idle => {}
            Phase::Opening => return Err(Errno(libc::EALREADY)),
            Phase::Connected => return Err(Errno(libc::EISCONN)),
            Phase::Listening | Phase::Refused => return Err(Errno::INVAL),
        }
        let local = state.id.local_addr();
        let source = match local {
            Some(_) => local,
            None => source_for(None, addr)?,
        };
        state.id.resolve_addr(source, addr, TIMEOUT)?;
        state.phase = Phase::Opening;
        match self.open(state, true) {
            Ok(_) => Ok(()),
            Err(Errno(libc::EAGAIN)) => Err(Errno(libc::EINPROGRESS)),
            Err(errno) => Err(errno),
        }
    }

    /// Until a connection that was asked for is there; without waiting if the program does not (`EAGAIN`).
    pub(super) fn open<'a>(
        &'a self,
        mut state: Guard<'a>,
        may_wait: bool,
    ) -> Result<Guard<'a>, Errno> {
        loop {
            state.advance()?;
            match state.phase {
                Phase::Opening => {}
                Phase::Connected => return Ok(state),
                Phase::Refused if state.error != 0 => return Err(Errno(state.error)),
                _ => return Err(Errno(libc::ENOTCONN)),
            }
            if state.is_non_blocking() || !may_wait {
                return Err(Errno(libc::EAGAIN));
            }
            state = self.next_event(state)?;
        }
    }
}

/// Queues and memory of a connection on an id's device.
pub(super) fn prepare(id: &Id, settings: &Settings) -> Result<Connection, Errno> {
    let context = id.device().ok_or(Errno(libc::EADDRNOTAVAIL))?;
    let connection = Connection::new(&context.alloc_pd()?, settings)?;
    id.set_option(CmOption::MinRnrTimer(MIN_RNR_TIMER))?;
    id.attach_qp(&connection.qp)?;
    connection.post_receives()?;
    Ok(connection)
}

impl State {
    /// Takes the events that are there, until the connection or a guest is.
    pub(super) fn advance(&mut self) -> Result<(), Errno> {
        let is_waiting = |state: &State| match state.phase {
            Phase::Listening => !state.guests.has_news(),
            phase => phase == Phase::Opening,
        };
        while is_waiting(self)
            && let Some(event) = self.channel.try_next()?
        {
            self.take(&event);
        }
        Ok(())
    }

    pub(super) fn take(&mut self, event: &Event) {
        match self.phase {
            Phase::Listening => self.guests.take(event, &self.settings),
            Phase::Opening => {
                if let Err(Errno(errno)) = self.step(event) {
                    self.phase = Phase::Refused;
                    self.error = errno;
                    self.connection = None;
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, event: &Event) -> Result<(), Errno> {
        match event.kind {
            EventKind::AddrResolved => Ok(self.id.resolve_route(TIMEOUT)?),
            EventKind::RouteResolved => {
                let connection = prepare(&self.id, &self.settings)?;
                let param = ConnParam {
                    private_data: connection.introduction().to_bytes().to_vec(),
                    responder_resources: 0,
                    initiator_depth: 0,
                    ..ConnParam::default()
                };
                self.connection = Some(Box::new(connection));
                Ok(self.id.connect(&param)?)
            }
            EventKind::Established => {
                let peer = ConnData::parse(event.private_data()).ok_or(Errno(libc::ENOTSUP))?;
                self.connection()?.meet(peer);
                self.phase = Phase::Connected;
                Ok(())
            }
            EventKind::Rejected => Err(Errno(libc::ECONNREFUSED)),
            EventKind::Unreachable => Err(Errno(libc::ETIMEDOUT)),
            EventKind::AddrError | EventKind::RouteError => Err(Errno(libc::EHOSTUNREACH)),
            EventKind::ConnectError | EventKind::Disconnected => Err(Errno(libc::ECONNRESET)),
            _ => Ok(()),
        }
    }
}
