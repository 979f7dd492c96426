//! QP 1 of a context: the connection manager's calls, and its events on their way to the
//! identifiers that they are for.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use urxe_core::cm::{
    Agent, AgentConfig, CmError as CoreError, CmEvent, CmPlaces, CommId, ListenerId, Scope,
};
use urxe_core::cq::CqId;
use urxe_core::qp::attr::{AttrMask, QpAttr};
use urxe_core::qp::state::QpState;
use urxe_core::qpn_table::{CHUNKS, QpnChunk};
use urxe_core::table::{QpIndex, cut};
use urxe_core::{Driver, Time};
use urxe_seal::Initiator;
use urxe_wire::Qpn;
use urxe_wire::cm::PortSpace;

use crate::cm::{FailQp, Mailbox, What};
use crate::engine::Engine;
use crate::engine::carrier::port_watch::LinkChange;
use crate::engine::carrier::sockets::{ListensAt, Which};
use crate::engine::drive::doorbell::Guard;
use crate::engine::drive::shard_state::ShardState;
use crate::engine::objects::handshakes::Handshakes;
use crate::error::Error;
use crate::guid::guid_of;
use crate::lock::lock;
use crate::queues::Ends;

/// The mailboxes of identifiers, by their numbers.
pub(in crate::engine) type Bound = Mutex<BTreeMap<u64, Arc<Mailbox>>>;

/// More than a window of one connection takes.
const RECEIVES_BEFORE_END: u32 = 64;

/// The receivers of events, by place.
#[derive(Debug, Default)]
pub(crate) struct CmTable {
    ids: Vec<Option<Arc<Mailbox>>>,
    /// With the number that this context has for the identifier that listens.
    listeners: Vec<Option<(Arc<Mailbox>, usize)>>,
    /// Its sockets are looked at, though no QP may use them.
    is_used: bool,
    /// Where connections have keys of their own.
    pub(in crate::engine) handshakes: Handshakes,
    /// Ends that wait for the program.
    pub(in crate::engine) ends: Ends<(Arc<Mailbox>, CmEvent)>,
}

impl CmTable {
    /// Gives up places that the agent has not any more.
    pub(in crate::engine) fn shrink(&mut self, places: CmPlaces) {
        cut(&mut self.ids, places.conns);
        cut(&mut self.listeners, places.listeners);
        self.handshakes.shrink(places.conns);
    }
}

/// How the agent of a context is.
pub(in crate::engine) fn agent_config(
    addrs: &[IpAddr],
    chunk: Option<QpnChunk>,
    is_shared: bool,
    secret: u64,
) -> AgentConfig {
    let any = QpnChunk((secret % CHUNKS as u64) as u16);
    AgentConfig {
        guid: guid_of(addrs),
        owner: chunk.unwrap_or(any),
        is_shared,
        secret,
    }
}

/// Ends of connections are told now.
fn tell(ends: impl IntoIterator<Item = (Arc<Mailbox>, CmEvent)>) {
    for (mailbox, event) in ends {
        mailbox.push(What::Agent(event));
    }
}

impl ShardState {
    /// Puts what the agent tells into the mailboxes.
    pub(in crate::engine) fn deliver_cm_events(&mut self) {
        self.serve_handshakes();
        while let Some(event) = self.shard.poll_cm_event() {
            if let CmEvent::Request(id, incoming) = event {
                if incoming.transport.is_some() && !self.take_pair_of(id, incoming.path.remote) {
                    continue;
                }
                let listener = self.cm.listeners.get(incoming.listener.0 as usize);
                if let Some(Some((mailbox, context))) = listener {
                    mailbox.push(What::Request(*context, id, incoming));
                }
                continue;
            }
            let id = event.id();
            match &event {
                CmEvent::Rejected(id, reason, data) => {
                    self.on_rejected(*id, *reason, data);
                    self.forget_handshake(*id);
                }
                CmEvent::Unreachable(id) => self.forget_handshake(*id),
                _ => {}
            }
            let place = self.shard.cm(|agent| id.place(agent)).flatten();
            let mailbox = place.and_then(|place| self.cm.ids.get(place));
            let Some(Some(mailbox)) = mailbox else {
                continue;
            };
            let mailbox = mailbox.clone();
            if let CmEvent::Disconnected { timed_out, .. } = event {
                mailbox.end(!timed_out);
            }
            if let CmEvent::Disconnected { .. } = event
                && let Some(qp) = mailbox.follower()
            {
                match &qp.elsewhere {
                    None => self.fail_qp(qp.index, qp.qpn),
                    // While this engine's lock is held: no thread that holds another shard's waits for this one.
                    Some(engine) => engine
                        .upgrade()
                        .into_iter()
                        .for_each(|engine| engine.fail_qp(qp.index, qp.qpn)),
                }
            }
            let completing = match event {
                CmEvent::Disconnected { .. } if mailbox.is_ended_by_peer() => mailbox.completing(),
                _ => None,
            };
            if let Some(qp) = completing {
                // What strict mode holds back has completed, too.
                self.strict_mut(|strict, _, cqs| strict.settle_completions(cqs));
                let told = self.cm.ends.begin((mailbox, event), qp, self.parts.now);
                tell(told);
                continue;
            }
            if self.cm.ends.due().is_some() {
                let is_its = |(other, _): &(Arc<Mailbox>, _)| Arc::ptr_eq(other, &mailbox);
                tell(self.cm.ends.take(is_its));
            }
            mailbox.push(What::Agent(event));
        }
    }

    /// The program has polled a queue and found it empty: ends of connections may have waited for that.
    #[inline]
    pub(in crate::engine) fn on_polled_empty(&mut self, cq: CqId) {
        if self.cm.ends.due().is_some() {
            tell(self.cm.ends.on_polled_empty(cq));
        }
    }

    /// Looks at ends of connections that wait, if it is time.
    #[inline]
    pub(in crate::engine) fn look_at_ends(&mut self) {
        let now = self.parts.now;
        if self.cm.ends.due().is_some_and(|due| due <= now) {
            tell(self.cm.ends.look(now));
        }
    }

    /// Has it written down what others are to say to peers if this process is killed.
    pub(in crate::engine) fn note_farewells(&mut self) {
        while let Some((place, farewell)) = self.shard.poll_farewell() {
            if let Some(membership) = &self.membership {
                membership.note_farewell(place, farewell, self.parts.now);
            }
        }
    }

    /// Fails a QP when its connection is over, so that posted requests complete: a thread may wait for nothing
    /// else.
    fn fail_qp(&mut self, index: QpIndex, qpn: Qpn) {
        // Another one may have its place.
        if self.qpn(index) != Some(qpn) {
            return;
        }
        self.receive_before_end();
        let attr = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::default()
        };
        // Of a QP that the program took back to RESET nothing is posted.
        let _ = self.with(|shard, env| shard.modify_qp(index, &attr, AttrMask::STATE, env));
    }

    /// Takes what peers sent before their end: it is here, and perhaps not looked at, in a ring that this engine has not even taken yet, or
    /// in its sockets. Strangers' packets may come without end.
    pub(in crate::engine) fn receive_before_end(&mut self) {
        self.receive_handed_over();
        for _ in 0..RECEIVES_BEFORE_END {
            if !self.receive(1, Which::All) {
                break;
            }
        }
    }

    fn assign(&mut self, id: CommId, mailbox: Option<Arc<Mailbox>>) {
        let Some(place) = self.shard.cm(|agent| id.place(agent)).flatten() else {
            return;
        };
        let ids = &mut self.cm.ids;
        if ids.len() <= place {
            ids.resize_with(place + 1, || None);
        }
        ids[place] = mailbox;
    }
}

impl Engine {
    /// Does something with the agent, and sends what it has to say.
    pub(crate) fn cm<R>(&self, act: impl FnOnce(&mut Agent, Time) -> R) -> Result<R, Error> {
        self.with_cm(|state, now| state.shard.cm(|agent| act(agent, now)))
            .map(|result| result.expect("every context has an agent"))
    }

    fn with_cm<R>(&self, act: impl FnOnce(&mut ShardState, Time) -> R) -> Result<R, Error> {
        let mut state = self.before_cm()?;
        let now = state.now;
        let result = act(&mut state, now);
        self.after_cm(&mut state);
        Ok(result)
    }

    fn before_cm(&self) -> Result<Guard<'_, ShardState>, Error> {
        let mut state = self.settled()?;
        if !state.cm.is_used {
            state.cm.is_used = true;
            if self.sockets.add_user(ListensAt::Everywhere) {
                // A sleeping thread must sleep on one more socket.
                self.progress.activated.notify();
                self.progress.kick();
            }
        }
        Ok(state)
    }

    fn after_cm(&self, state: &mut ShardState) {
        self.note_gone(state.shard.cm_occupancy());
        state.transmit(Driver::Visitor);
        // A sealed message to a neighbour may have come back to these sockets, and the process may end right after this call.
        if state.is_sealed() {
            state.receive_what_came_before();
        }
    }

    /// What the program posted and received before a call of the connection manager leaves before what the agent has to say: behind the
    /// end of a connection the peer would have no use for an ACK.
    fn settled(&self) -> Result<Guard<'_, ShardState>, Error> {
        let mut state = self.enter()?;
        state.serve_bells();
        state.transmit(Driver::Visitor);
        Ok(state)
    }

    /// Does so for the agent of another engine.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        self.settled().map(drop)
    }

    /// Asks for a connection of the identifier that has this mailbox, after a handshake if one was begun, or where a datagram QP is.
    pub(crate) fn cm_begin(
        &self,
        mailbox: &Arc<Mailbox>,
        initiator: Option<Initiator>,
        begin: impl FnOnce(&mut Agent, Time) -> Result<CommId, CoreError>,
    ) -> Result<Result<CommId, CoreError>, Error> {
        self.with_cm(|state, now| {
            let begun = state.shard.cm(|agent| begin(agent, now));
            let begun = begun.expect("every context has an agent");
            if let Ok(id) = begun {
                state.assign(id, Some(mailbox.clone()));
                state.note_asked(id, initiator);
            }
            begun
        })
    }

    /// The program takes a request: its events go to this mailbox. False if it is gone.
    pub(crate) fn cm_adopt(&self, id: CommId, mailbox: &Arc<Mailbox>) -> Result<bool, Error> {
        self.with_cm(|state, _| {
            let is_there = state.shard.cm(|agent| agent.take(id)) == Some(true);
            if is_there {
                state.assign(id, Some(mailbox.clone()));
            }
            is_there
        })
    }

    /// The identifier with this number is bound to this context: it hears of the interface.
    pub(crate) fn cm_bind(&self, number: u64, mailbox: &Arc<Mailbox>) {
        lock(&self.bound).insert(number, mailbox.clone());
    }

    /// It is gone.
    pub(crate) fn cm_unbind(&self, number: u64) {
        // After a fork another thread's lock may be held for ever.
        if self.check_process().is_ok() {
            lock(&self.bound).remove(&number);
        }
    }

    /// Identifiers hear that the interface was removed, or has another address on its link.
    pub(in crate::engine) fn tell_bound(&self, change: LinkChange) {
        let bound: Vec<_> = lock(&self.bound).values().cloned().collect();
        for mailbox in bound {
            mailbox.push(What::of_interface(change == LinkChange::Removed));
        }
    }

    /// The identifier is gone.
    pub(crate) fn cm_destroy(&self, id: CommId) {
        // After a fork or a panic there is nothing to end.
        let _ = self.with_cm(|state, now| {
            state.assign(id, None);
            state.forget_handshake(id);
            state.shard.cm(|agent| agent.destroy(now, id));
        });
    }

    /// Requests for the port go to this mailbox, as those of its context number `context`.
    pub(crate) fn cm_listen(
        &self,
        (mailbox, context): (&Arc<Mailbox>, usize),
        (space, port): (PortSpace, u16),
        scope: Scope,
        backlog: u32,
    ) -> Result<Result<ListenerId, CoreError>, Error> {
        self.with_cm(|state, _| {
            let listen = |agent: &mut Agent| agent.listen(space, port, scope, backlog);
            let id = state
                .shard
                .cm(listen)
                .expect("every context has an agent")?;
            let listeners = &mut state.cm.listeners;
            let place = id.0 as usize;
            if listeners.len() <= place {
                listeners.resize_with(place + 1, || None);
            }
            listeners[place] = Some((mailbox.clone(), context));
            Ok(id)
        })
    }

    /// Says to peers that others of these addresses are gone, and to connections of this context that their peers are.
    pub(in crate::engine) fn say_farewells(&self) {
        let Some(membership) = &self.membership else {
            return;
        };
        let gone = membership.take_gone(|addr| self.sockets.addrs().any(|own| own == addr));
        if gone.ended.is_empty() && gone.to_say.is_empty() {
            return;
        }
        // A failed engine has nothing to say.
        let _ = self.with_cm(|state, now| {
            // What the peer sent before its end is here, and perhaps not looked at.
            state.receive_before_end();
            state.shard.cm(|agent| {
                for farewell in &gone.ended {
                    agent.take_farewell(now, farewell);
                }
                for farewell in &gone.to_say {
                    agent.say_farewell(farewell);
                }
            });
        });
    }

    pub(crate) fn cm_unlisten(&self, id: ListenerId) {
        let _ = self.with_cm(|state, now| {
            state.shard.cm(|agent| agent.unlisten(now, id));
            if let Some(place) = state.cm.listeners.get_mut(id.0 as usize) {
                *place = None;
            }
        });
    }
}

impl FailQp for Engine {
    fn fail_qp(&self, index: QpIndex, qpn: Qpn) {
        // A failed engine has failed its QPs.
        if let Ok(mut state) = self.enter() {
            state.fail_qp(index, qpn);
            state.transmit(Driver::Visitor);
        }
    }
}
