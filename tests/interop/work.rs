//! Work requests and completions as both sides understand them: the numbers are those of verbs.

use urxe::{Flush, SendFlags, WrOpcode};

/// Access rights (`enum ibv_access_flags`).
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 2;
    pub(crate) const REMOTE_READ: u32 = 4;
    pub(crate) const REMOTE_ATOMIC: u32 = 8;
    pub(crate) const MW_BIND: u32 = 16;
    pub(crate) const FLUSH_GLOBAL: u32 = 256;
    pub(crate) const ALL: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
}

/// Completion statuses (`enum ibv_wc_status`).
pub(crate) mod status {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const LOC_LEN_ERR: u32 = 1;
    pub(crate) const LOC_QP_OP_ERR: u32 = 2;
    pub(crate) const WR_FLUSH_ERR: u32 = 5;
    pub(crate) const REM_INV_REQ_ERR: u32 = 9;
    pub(crate) const REM_ACCESS_ERR: u32 = 10;
    pub(crate) const REM_OP_ERR: u32 = 11;
    pub(crate) const RETRY_EXC_ERR: u32 = 12;
    pub(crate) const RNR_RETRY_EXC_ERR: u32 = 13;
}

/// A part of a registered region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) mr: Region,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// A registered region, by the handle that its side gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) id: u32,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

impl Region {
    pub(crate) fn span(self, offset: usize, length: usize) -> Span {
        Span {
            mr: self,
            offset,
            length,
        }
    }

    /// The address of one of its bytes.
    pub(crate) fn at(self, offset: usize) -> u64 {
        self.addr + offset as u64
    }
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WrOpcode,
    pub(crate) flags: SendFlags,
    pub(crate) local: Span,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) imm: u32,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) flush: Option<Flush>,
    /// Where a datagram goes: address handle, QP number and Q_Key.
    pub(crate) datagram: Option<(u32, u32, u32)>,
}

impl Work {
    pub(crate) fn new(wr_id: u64, opcode: WrOpcode, local: Span) -> Work {
        Work {
            wr_id,
            opcode,
            flags: SendFlags::SIGNALED,
            local,
            remote_addr: 0,
            rkey: 0,
            imm: 0,
            compare_add: 0,
            swap: 0,
            flush: None,
            datagram: None,
        }
    }

    pub(crate) fn to(self, remote_addr: u64, rkey: u32) -> Work {
        Work {
            remote_addr,
            rkey,
            ..self
        }
    }

    pub(crate) fn flag(self, flag: SendFlags) -> Work {
        Work {
            flags: self.flags | flag,
            ..self
        }
    }
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) byte_len: u32,
    pub(crate) qpn: u32,
    pub(crate) src_qp: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<u32>,
}
