//! One line for any packet or frame, in the manner of tcpdump.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::cm::CmMessage;
use crate::frame::{Frame, RoceFrame};
use crate::ids::Qpn;
use crate::opcode::{Opcode, OpcodeInfo, Operation};
use crate::packet::Packet;
use crate::pfc::{Pause, PauseFrame};
use crate::syndrome::{NakCode, Syndrome, SyndromeKind};

/// As in `RC RDMA WRITE Only QPN 0x11 PSN 256 ackreq va 0x7f00 rkey 0x1234 len 8, 8 bytes`.
impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = self.bth();
        match self.info().operation {
            Operation::Unassigned => fmt_unassigned(bth.opcode, f)?,
            _ => f.write_str(self.info().name)?,
        }
        write!(f, " QPN {:#x}", bth.dest_qp.get())?;
        if let Some(deth) = self.deth() {
            write!(f, " from {:#x} qkey {:#x}", deth.src_qp.get(), deth.qkey.0)?;
        }
        if self.info().operation != Operation::Cnp {
            write!(f, " PSN {}", bth.psn.get())?;
        }
        let flags = [
            (bth.ack_req, " ackreq"),
            (bth.solicited, " solicited"),
            (bth.fecn, " FECN"),
            (bth.becn, " BECN"),
        ];
        for (_, text) in flags.into_iter().filter(|(set, _)| *set) {
            f.write_str(text)?;
        }
        self.fmt_extensions(f)?;
        match self.payload().len() {
            0 => {}
            1 => write!(f, ", 1 byte")?,
            len => write!(f, ", {len} bytes")?,
        }
        match self.cm_message() {
            Some(message) => write!(f, ", {message}"),
            None => Ok(()),
        }
    }
}

/// The name of an opcode that no service here has: of reliable datagrams (010), with opcodes numbered as those of reliable
/// connections, or of a manufacturer (110, 111), as those of dynamically connected QPs (DC) are.
fn fmt_unassigned(opcode: Opcode, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const RESYNC: u8 = 0x55;
    let Opcode(number) = opcode;
    match (number, Opcode(number & 0x1f).info()) {
        (RESYNC, _) => f.write_str("RD RESYNC"),
        (0x40..RESYNC, Some(like)) => {
            write!(f, "RD {}", like.name.trim_start_matches("RC "))
        }
        (0xc0.., _) => write!(f, "manufacturer's opcode {number:#04x} (DC or the like)"),
        _ => write!(f, "{} {number:#04x}", OpcodeInfo::UNASSIGNED.name),
    }
}

impl Packet<'_> {
    fn fmt_extensions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(xrceth) = self.xrceth() {
            write!(f, " SRQ {:#x}", xrceth.srqn.get())?;
        }
        if let Some(feth) = self.feth() {
            let (placement, selectivity) = (feth.placement, feth.selectivity);
            write!(f, " placement {placement} selectivity {selectivity}")?;
        }
        if let Some(reth) = self.reth() {
            let (va, rkey, len) = (reth.va, reth.rkey.0, reth.dma_len);
            write!(f, " va {va:#x} rkey {rkey:#x} len {len}")?;
        }
        if let Some(atomic) = self.atomic_eth() {
            write!(f, " va {:#x} rkey {:#x}", atomic.va, atomic.rkey.0)?;
            let (compare, swap) = (atomic.compare, atomic.swap_add);
            match self.info().operation {
                Operation::CompareSwap => write!(f, " compare {compare:#x} swap {swap:#x}")?,
                _ => write!(f, " add {swap:#x}")?,
            }
        }
        if let Some(aeth) = self.aeth() {
            write!(f, " {} MSN {}", aeth.syndrome, aeth.msn.get())?;
        }
        if let Some(ack) = self.atomic_ack_eth() {
            write!(f, " original {:#x}", ack.original)?;
        }
        if let Some(imm) = self.imm() {
            write!(f, " imm {:#010x}", u32::from_be_bytes(imm.0))?;
        }
        match self.ieth() {
            Some(ieth) => write!(f, " invalidate {:#x}", ieth.rkey.0),
            None => Ok(()),
        }
    }

    /// The connection manager message in it, if it is a datagram to QP 1 that holds one.
    pub fn cm_message(&self) -> Option<CmMessage> {
        let is_gsi = self.deth().is_some() && self.bth().dest_qp == Qpn::GSI;
        let (_, message) = is_gsi.then(|| CmMessage::parse(self.payload()))?.ok()?;
        Some(message)
    }
}

/// As in `ACK credits 16`, `RNR NAK 2.56ms` or `NAK remote access error`.
impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decode() {
            SyndromeKind::Ack(code) => match code.credits() {
                Some(credits) => write!(f, "ACK credits {credits}"),
                None => f.write_str("ACK"),
            },
            SyndromeKind::RnrNak(timer) => write!(f, "RNR NAK {:?}", timer.duration()),
            SyndromeKind::Nak(code) => write!(f, "NAK {code}"),
            SyndromeKind::Reserved => write!(f, "reserved syndrome {:#04x}", self.0),
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NakCode::PsnSequence => "PSN sequence error",
            NakCode::InvalidRequest => "invalid request",
            NakCode::RemoteAccess => "remote access error",
            NakCode::RemoteOperational => "remote operational error",
            NakCode::InvalidRd => "invalid RD request",
            NakCode::Other(number) => return write!(f, "code {number}"),
        })
    }
}

/// As in `REQ id 0x1c2f service 0x1061c06 QPN 0x11 starting PSN 5, 10.0.0.1:49000 to 10.0.0.2`.
impl fmt::Display for CmMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let ids = |f: &mut fmt::Formatter<'_>, local: u32, remote: u32| {
            write!(f, " id {local:#x} to {remote:#x}")
        };
        match self {
            CmMessage::Req(m) => {
                write!(f, " id {:#x} service {:#x}", m.local_comm_id, m.service_id)?;
                let psn = m.starting_psn.get();
                write!(f, " QPN {:#x} starting PSN {psn}", m.local_qpn.get())?;
                fmt_addresses(f, &m.private_data)
            }
            CmMessage::Rep(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                let psn = m.starting_psn.get();
                write!(f, " QPN {:#x} starting PSN {psn}", m.local_qpn.get())
            }
            CmMessage::Rtu(m) => ids(f, m.local_comm_id, m.remote_comm_id),
            CmMessage::Mra(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                write!(f, " of {}", m.message)
            }
            CmMessage::Rej(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                write!(f, " of {}: {}", m.message, m.reason)
            }
            CmMessage::Dreq(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                write!(f, " QPN {:#x}", m.remote_qpn.get())
            }
            CmMessage::Drep(m) => ids(f, m.local_comm_id, m.remote_comm_id),
            CmMessage::Lap(m) => ids(f, m.local_comm_id, m.remote_comm_id),
            CmMessage::Apr(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                write!(f, " status {}", m.status)
            }
            CmMessage::SidrReq(m) => {
                write!(f, " id {:#x} service {:#x}", m.request_id, m.service_id)?;
                fmt_addresses(f, &m.private_data)
            }
            CmMessage::SidrRep(m) => {
                write!(f, " id {:#x} {}", m.request_id, m.status)?;
                write!(f, " QPN {:#x} qkey {:#x}", m.qpn.get(), m.qkey.0)
            }
        }
    }
}

/// The addresses that RDMA-CM puts into private data, where they are.
fn fmt_addresses(f: &mut fmt::Formatter<'_>, private_data: &[u8]) -> fmt::Result {
    match crate::cm::IpCmHeader::parse(private_data) {
        Ok(header) => {
            let src = SocketAddr::new(header.src_ip(), header.src_port);
            write!(f, ", {src} to {}", header.dst_ip())
        }
        Err(_) => Ok(()),
    }
}

/// As in `10.0.0.1.4791 > 10.0.0.2.4791: RC SEND Only QPN 0x11 PSN 123 ackreq, 8 bytes`.
impl fmt::Display for RoceFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_end(f, self.src(), self.udp().map(|udp| udp.src_port))?;
        f.write_str(" > ")?;
        fmt_end(f, self.dst(), self.udp().map(|udp| udp.dst_port))?;
        write!(f, ": {}", self.packet)?;
        if self.traffic_class() & 3 == 3 {
            f.write_str(", CE")?;
        }
        if !self.is_icrc_ok() {
            f.write_str(", bad ICRC")?;
        }
        Ok(())
    }
}

fn fmt_end(f: &mut fmt::Formatter<'_>, address: IpAddr, port: Option<u16>) -> fmt::Result {
    write!(f, "{address}")?;
    match port {
        Some(port) => write!(f, ".{port}"),
        None => Ok(()),
    }
}

/// As in `PFC priority 3 pause 65535 quanta, priority 4 resume`.
impl fmt::Display for PauseFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pause {
            Pause::All(0) => f.write_str("PAUSE resume"),
            Pause::All(quanta) => write!(f, "PAUSE {quanta} quanta"),
            Pause::Priorities { enabled, quanta } => {
                f.write_str("PFC")?;
                let mut separator = "";
                for (priority, quantum) in quanta.into_iter().enumerate() {
                    if enabled >> priority & 1 == 0 {
                        continue;
                    }
                    write!(f, "{separator} priority {priority} ")?;
                    match quantum {
                        0 => f.write_str("resume")?,
                        quantum => write!(f, "pause {quantum} quanta")?,
                    }
                    separator = ",";
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Roce(frame) => frame.fmt(f),
            Frame::Pause(frame) => frame.fmt(f),
        }
    }
}
