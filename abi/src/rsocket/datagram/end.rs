//! A queue pair of a datagram socket: one for each address of this host that it sends from.

use core::net::{IpAddr, SocketAddr};

use urxe::cm::UDP_QKEY;
use urxe::{
    Access, AddressHandle, AddressVector, CompChannel, Cq, Mr, Qp, QpType, Qpn, RecvWr, SendWr, Wc,
};

use super::wire::{Introduction, header};
use crate::cm::manager::manager;
use crate::errno::Errno;

/// Bytes of a message with its header, as other implementations have room for.
pub(super) const MESSAGE_MAX: usize = 2048;
/// What lies in front of a received datagram.
const GRH_LEN: usize = 40;
const RECV: u64 = 1 << 63;

pub(super) struct End {
    pub(super) local: SocketAddr,
    pub(super) qp: Qp,
    cq: Cq,
    pub(super) events: CompChannel,
    send_slots: Mr,
    free: Vec<usize>,
    slots: usize,
    recv_slots: Mr,
    header: Vec<u8>,
    pub(super) is_armed: bool,
}

impl End {
    pub(super) fn new(local: SocketAddr, sends: u32, receives: u32) -> Result<End, Errno> {
        let context = manager().context_of(local.ip())?;
        let pd = context.alloc_pd()?;
        let events = context.create_comp_channel()?;
        let cq = context
            .cq((sends + receives) as usize)
            .channel(&events)
            .create()?;
        let qp = pd
            .qp(&cq)
            .qp_type(QpType::Ud)
            .max_send_wr(sends)
            .max_recv_wr(receives)
            .signal_all()
            .create()?;
        let slots = |count: u32, size: usize| {
            pd.reg_owned(vec![0; count as usize * size], Access::LOCAL_WRITE)
        };
        let end = End {
            local,
            send_slots: slots(sends, MESSAGE_MAX)?,
            recv_slots: slots(receives, GRH_LEN + MESSAGE_MAX)?,
            free: (0..sends as usize).collect(),
            slots: sends as usize,
            header: header(local),
            is_armed: false,
            qp,
            cq,
            events,
        };
        end.qp.start_datagrams(UDP_QKEY)?;
        for slot in 0..receives as usize {
            end.post(slot)?;
        }
        Ok(end)
    }

    /// What a peer is told of it.
    pub(super) fn introduction(&self, is_data: bool) -> Introduction {
        Introduction {
            is_data,
            qpn: self.qp.qp_num().get(),
            ip: self.local.ip(),
        }
    }

    fn post(&self, slot: usize) -> Result<(), Errno> {
        let at = slot * (GRH_LEN + MESSAGE_MAX);
        let sges = [self.recv_slots.sge(at..at + GRH_LEN + MESSAGE_MAX)];
        Ok(self.qp.post_recv(&RecvWr::new(RECV | slot as u64, &sges))?)
    }

    /// The way to a peer's queue pair.
    pub(super) fn way_to(&self, peer: IpAddr) -> Result<AddressHandle, Errno> {
        Ok(self.qp.pd().create_ah(&AddressVector {
            local: self.local.ip(),
            remote: peer,
            traffic_class: 0,
            hop_limit: 64,
        })?)
    }

    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots
    }

    /// Sends the parts as one message. There has to be a free place.
    pub(super) fn send(&mut self, to: (&AddressHandle, u32), parts: &[&[u8]]) -> Result<(), Errno> {
        let len = self.header.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        if len > MESSAGE_MAX {
            return Err(Errno(libc::EMSGSIZE));
        }
        let slot = self.free.pop().ok_or(Errno(libc::EAGAIN))?;
        let start = slot * MESSAGE_MAX;
        let mut at = start;
        for part in [&self.header[..]].into_iter().chain(parts.iter().copied()) {
            self.send_slots.write(at, part);
            at += part.len();
        }
        let sges = [self.send_slots.sge(start..at)];
        let (way, qpn) = to;
        let request = SendWr::send(slot as u64, &sges).ud_addr(way, Qpn::new(qpn), UDP_QKEY);
        let posted = self.qp.post_send(&request);
        if posted.is_err() {
            self.free.push(slot);
        }
        Ok(posted?)
    }

    /// Takes what is complete; each datagram that came is handed over, with the address of its packet.
    pub(super) fn progress(&mut self, mut take: impl FnMut(IpAddr, &[u8])) -> Result<(), Errno> {
        let mut wcs = [Wc::default(); 16];
        let mut bytes = [0; MESSAGE_MAX];
        loop {
            let count = self.cq.poll(&mut wcs)?;
            for wc in &wcs[..count] {
                if wc.wr_id & RECV == 0 {
                    self.free.push(wc.wr_id as usize);
                    continue;
                }
                let slot = (wc.wr_id & !RECV) as usize;
                let len = (wc.byte_len as usize)
                    .saturating_sub(GRH_LEN)
                    .min(MESSAGE_MAX);
                if wc.is_success() {
                    let at = slot * (GRH_LEN + MESSAGE_MAX);
                    let mut grh = [0; GRH_LEN];
                    self.recv_slots.read(at, &mut grh);
                    self.recv_slots.read(at + GRH_LEN, &mut bytes[..len]);
                    // One to an address that was lost meanwhile is lost too.
                    if let Ok(way) = self.qp.pd().context().init_ah_from_wc(1, wc, &grh) {
                        take(way.remote, &bytes[..len]);
                    }
                    self.post(slot)?;
                }
            }
            if count < wcs.len() {
                return Ok(());
            }
        }
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&mut self) -> Result<(), Errno> {
        if !self.is_armed {
            self.cq.req_notify(false)?;
            self.is_armed = true;
        }
        Ok(())
    }

    /// Takes the event, if there is one.
    pub(super) fn disarm(&mut self) {
        if let Ok(Some(cq)) = self.events.try_get() {
            cq.ack_events(1);
            self.is_armed = false;
        }
    }
}
