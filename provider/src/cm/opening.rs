//! What an event changes in its identifier when the program takes it.

use core::net::SocketAddr;
use std::sync::Arc;

use urxe_core::cm::{CmEvent, CommId, Incoming, Reply, Terms, Transport};
use urxe_core::qp::attr::{AddressVector, Mtu};
use urxe_core::qp::state::QpType;
use urxe_wire::cm::SidrStatus;
use urxe_wire::{Qkey, Qpn};

use super::event::Event;
use super::event_kind::{EventKind, EventParam};
use super::id::{Id, Step};
use super::param::{ConnParam, UdParam};
use super::qp::{Agreed, HOP_LIMIT};
use super::queue::{Queue, Queued, What};

impl Queued {
    /// The event, if its identifier still is. `queue` is the channel that it came by.
    pub(super) fn open(self, queue: &Arc<Queue>) -> Option<Event> {
        let id = Id {
            handle: self.to.upgrade()?.downcast().ok()?,
        };
        match self.what {
            What::Plain(kind, status, param) => Some(event(id, kind, status, param)),
            What::Agent(happened) => {
                // The call that began it may not have returned, in another thread.
                id.state().conn.get_or_insert(happened.id());
                id.on_event(happened)
            }
            What::Request(context, conn, incoming) => {
                id.on_request(queue, context, conn, *incoming)
            }
        }
    }
}

impl Id {
    fn on_event(self, happened: CmEvent) -> Option<Event> {
        let (kind, status, param) = match happened {
            CmEvent::Reply(_, reply) => return Some(self.on_reply(*reply)),
            CmEvent::Rejected(_, reason, data) => {
                self.end();
                (EventKind::Rejected, i32::from(reason.0), with_data(&data))
            }
            CmEvent::Unreachable(_) => {
                self.end();
                (EventKind::Unreachable, -libc::ETIMEDOUT, EventParam::None)
            }
            CmEvent::Established(_, data) => (EventKind::Established, 0, with_data(&data)),
            CmEvent::Disconnected {
                timed_out,
                private_data,
                ..
            } => {
                self.end();
                let status = if timed_out { -libc::ETIMEDOUT } else { 0 };
                (EventKind::Disconnected, status, with_data(&private_data))
            }
            CmEvent::TimewaitExit(_) => (EventKind::TimewaitExit, 0, EventParam::None),
            // A kind that this version does not know.
            _ => return None,
        };
        Some(event(self, kind, status, param))
    }

    /// The connection is over, or will not be.
    fn end(&self) {
        // What was posted completes; if it cannot, its QP is gone.
        let _ = self.fail_attached();
    }

    fn on_reply(self, reply: Reply) -> Event {
        match reply {
            Reply::Connection {
                terms,
                private_data,
            } => self.on_connection(&terms, &private_data),
            Reply::Datagram {
                status,
                qpn,
                qkey,
                private_data,
            } => {
                let kind = match status {
                    SidrStatus::VALID => EventKind::Established,
                    _ => EventKind::Unreachable,
                };
                let param = self.ud_param(qpn, qkey, &private_data);
                event(self, kind, i32::from(status.0), param)
            }
        }
    }

    /// The peer accepted. An attached QP is made ready, and the peer told.
    fn on_connection(self, terms: &Terms, private_data: &[u8]) -> Event {
        {
            let mut state = self.state();
            let proposed = state.agreed;
            let mtu = proposed.map_or(Mtu::Mtu1024, |agreed| agreed.path_mtu);
            let accepted = Agreed::of_terms(terms, mtu);
            state.agreed = Some(proposed.map_or(accepted, |proposed| Agreed {
                retry_count: proposed.retry_count,
                ack_timeout: proposed.ack_timeout,
                tos: proposed.tos,
                ..accepted
            }));
            state.remote_ece = terms.vendor;
        }
        let param = EventParam::Conn(conn_param(terms, private_data));
        if let Err(error) = self.bind_pair(None) {
            // The peer hears of it as far as it can be told.
            let _ = self.reject(&[]);
            self.end();
            return event(self, EventKind::ConnectError, -error.errno(), param);
        }
        let Some(qp) = self.attached() else {
            return event(self, EventKind::ConnectResponse, 0, param);
        };
        match self.answer(&qp) {
            Ok(()) => event(self, EventKind::Established, 0, param),
            Err(error) => event(self, EventKind::ConnectError, -error.errno(), param),
        }
    }

    /// A peer asks: it gets an identifier of its own.
    fn on_request(
        self,
        queue: &Arc<Queue>,
        context: usize,
        conn: CommId,
        incoming: Incoming,
    ) -> Option<Event> {
        let (context, options, qkey) = {
            let state = self.state();
            let context = state.listening.get(context)?.context.clone();
            (context, state.options, state.qkey)
        };
        let qp_type = match incoming.transport {
            None => QpType::Ud,
            Some(Transport::Rc) => QpType::Rc,
            Some(Transport::Uc) => QpType::Uc,
            Some(Transport::Xrc) => QpType::XrcRecv,
        };
        let new = Id::make(self.manager(), queue, self.port_space(), qp_type).ok()?;
        new.handle.bind(&context);
        {
            let mut state = new.state();
            let path = incoming.path;
            state.conn = Some(conn);
            state.step = Step::Asked;
            state.local = Some(SocketAddr::new(path.local, incoming.local_port));
            state.peer = Some(SocketAddr::new(path.remote, incoming.remote_port));
            (state.options, state.qkey) = (options, qkey);
            state.remote_ece = incoming.terms.vendor;
            if qp_type != QpType::Ud {
                state.agreed = Some(Agreed::of_request(&incoming));
            }
        }
        // From here on it has events. A failed engine has no requests.
        let adopted = context.engine().cm_adopt(conn, &new.handle.mailbox);
        if !adopted.unwrap_or(false) {
            return None;
        }
        let param = match incoming.transport {
            Some(_) => EventParam::Conn(conn_param(&incoming.terms, &incoming.private_data)),
            None => new.ud_param(Qpn::new(0), Qkey(0), &incoming.private_data),
        };
        Some(Event {
            listen_id: Some(self),
            ..event(new, EventKind::ConnectRequest, 0, param)
        })
    }

    fn ud_param(&self, qp_num: Qpn, qkey: Qkey, private_data: &[u8]) -> EventParam {
        let state = self.state();
        let (Some(local), Some(peer)) = (state.local, state.peer) else {
            return EventParam::None;
        };
        EventParam::Ud(UdParam {
            private_data: private_data.to_vec(),
            ah_attr: AddressVector {
                local: local.ip(),
                remote: peer.ip(),
                traffic_class: state.options.tos,
                hop_limit: HOP_LIMIT,
            },
            qp_num,
            qkey,
            token: 0,
        })
    }
}

fn event(id: Id, kind: EventKind, status: i32, param: EventParam) -> Event {
    Event {
        kind,
        status,
        id,
        listen_id: None,
        param,
    }
}

fn conn_param(terms: &Terms, private_data: &[u8]) -> ConnParam {
    ConnParam {
        private_data: private_data.to_vec(),
        responder_resources: terms.responder_resources,
        initiator_depth: terms.initiator_depth,
        flow_control: terms.flow_control,
        retry_count: terms.retry_count,
        rnr_retry_count: terms.rnr_retry_count,
        srq: terms.srq,
        qp_num: terms.qpn,
    }
}

fn with_data(private_data: &[u8]) -> EventParam {
    if private_data.is_empty() {
        return EventParam::None;
    }
    EventParam::Conn(ConnParam {
        private_data: private_data.to_vec(),
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: false,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: false,
        qp_num: Qpn::new(0),
    })
}
