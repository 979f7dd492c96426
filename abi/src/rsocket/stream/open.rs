//! Binding, listening, connecting and accepting.

use core::net::SocketAddr;
use core::time::Duration;

use urxe::cm::{CmOption, ConnParam, Event, EventChannel, EventKind, Id};

use super::connection::Connection;
use super::{Guard, Phase, State, Stream};
use crate::cm::manager::{manager, source_for};
use crate::errno::Errno;
use crate::rsocket::wire::ConnData;

/// For addresses and routes.
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
            state.id.listen(backlog)?;
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
            let channel = state.channel.clone();
            drop(state);
            let event = channel.wait(None)?;
            state = self.lock();
            if let Some(event) = event {
                state.take(event);
            }
        }
    }

    pub(in super::super) fn accept(&self) -> Result<Stream, Errno> {
        let (channel, settings, may_wait) = {
            let state = self.lock();
            if state.phase != Phase::Listening {
                return Err(Errno::INVAL);
            }
            let may_wait = !state.is_non_blocking();
            (state.channel.clone(), state.settings.clone(), may_wait)
        };
        loop {
            let event = match channel.try_next()? {
                Some(event) => event,
                None if !may_wait => return Err(Errno(libc::EAGAIN)),
                None => match channel.wait(None)? {
                    Some(event) => event,
                    None => continue,
                },
            };
            if event.kind == EventKind::ConnectRequest {
                return welcome(&event, settings);
            }
        }
    }
}

/// A socket for a request. It is not waited for: what the peer sends finds it ready.
fn welcome(event: &Event, settings: crate::rsocket::settings::Settings) -> Result<Stream, Errno> {
    let Some(peer) = ConnData::parse(event.private_data()) else {
        // No rsocket.
        event.id.reject(&[])?;
        return Err(Errno(libc::ENOTSUP));
    };
    let channel = EventChannel::with_manager(manager())?;
    let id = event.id.clone();
    id.migrate(&channel)?;
    let mut connection = prepare(&id, &settings)?;
    connection.meet(peer);
    let offer = event.conn().cloned().unwrap_or_default();
    let param = ConnParam {
        private_data: connection.introduction().to_bytes().to_vec(),
        rnr_retry_count: 7,
        ..offer
    };
    id.accept(&ConnParam {
        qp_num: connection.qp.qp_num(),
        ..param
    })?;
    let stream = Stream::of(channel, id, Phase::Connected, settings);
    stream.lock().connection = Some(Box::new(connection));
    Ok(stream)
}

/// Queues and memory of a connection on an id's device.
fn prepare(id: &Id, settings: &crate::rsocket::settings::Settings) -> Result<Connection, Errno> {
    let context = id.device().ok_or(Errno(libc::EADDRNOTAVAIL))?;
    let connection = Connection::new(&context.alloc_pd()?, settings)?;
    id.set_option(CmOption::MinRnrTimer(MIN_RNR_TIMER))?;
    id.attach_qp(&connection.qp)?;
    connection.post_receives()?;
    Ok(connection)
}

impl State {
    /// Takes the events that are there, as far as they are about connecting.
    pub(super) fn advance(&mut self) -> Result<(), Errno> {
        while self.phase == Phase::Opening {
            match self.channel.try_next()? {
                Some(event) => self.take(event),
                None => break,
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Event) {
        if self.phase != Phase::Opening {
            return;
        }
        if let Err(Errno(errno)) = self.step(&event) {
            self.phase = Phase::Refused;
            self.error = errno;
            self.connection = None;
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
