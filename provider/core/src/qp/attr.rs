//! The attributes of a QP, as `ibv_modify_qp` and `ibv_query_qp` know them.

use core::net::IpAddr;

use urxe_wire::{Psn, Qkey, Qpn};

use crate::mr::Access;
use crate::qp::state::{ModifyError, QpState};

/// Which attributes a modify names, with the bits of `enum ibv_qp_attr_mask`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
#[doc(alias = "ibv_qp_attr_mask")]
pub struct AttrMask(pub u32);

macro_rules! mask_bits {
    ($($name:ident = $bit:literal, $field:literal;)*) => {
        impl AttrMask {
            $(#[doc = $field] pub const $name: AttrMask = AttrMask(1 << $bit);)*

            /// Names of all bits, in order.
            const NAMES: &'static [(u32, &'static str)] = &[$((1 << $bit, stringify!($name))),*];
        }
    };
}

mask_bits! {
    STATE = 0, "`qp_state`";
    CUR_STATE = 1, "`cur_qp_state`";
    EN_SQD_ASYNC_NOTIFY = 2, "`en_sqd_async_notify`";
    ACCESS_FLAGS = 3, "`qp_access_flags`";
    PKEY_INDEX = 4, "`pkey_index`";
    PORT = 5, "`port_num`";
    QKEY = 6, "`qkey`";
    AV = 7, "`ah_attr`";
    PATH_MTU = 8, "`path_mtu`";
    TIMEOUT = 9, "`timeout`";
    RETRY_CNT = 10, "`retry_cnt`";
    RNR_RETRY = 11, "`rnr_retry`";
    RQ_PSN = 12, "`rq_psn`";
    MAX_QP_RD_ATOMIC = 13, "`max_rd_atomic`";
    ALT_PATH = 14, "`alt_ah_attr` and its companions";
    MIN_RNR_TIMER = 15, "`min_rnr_timer`";
    SQ_PSN = 16, "`sq_psn`";
    MAX_DEST_RD_ATOMIC = 17, "`max_dest_rd_atomic`";
    PATH_MIG_STATE = 18, "`path_mig_state`";
    CAP = 19, "`cap`";
    DEST_QPN = 20, "`dest_qp_num`";
}

/// A mask of these attributes.
macro_rules! mask {
    ($($name:ident)|*) => { AttrMask(0 $(| AttrMask::$name.0)*) };
}
pub(crate) use mask;

impl AttrMask {
    /// No attribute.
    pub const NONE: AttrMask = AttrMask(0);

    /// The bits of `self` that are not in `other`.
    #[inline]
    pub const fn without(self, other: AttrMask) -> AttrMask {
        AttrMask(self.0 & !other.0)
    }

    /// The bits of both.
    #[inline]
    pub const fn and(self, other: AttrMask) -> AttrMask {
        AttrMask(self.0 & other.0)
    }

    /// Union, for tables.
    #[inline]
    pub const fn union(self, other: AttrMask) -> AttrMask {
        AttrMask(self.0 | other.0)
    }

    /// True if no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

bit_set!(AttrMask);

impl core::fmt::Display for AttrMask {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut rest = self.0;
        let mut separator = "";
        for &(bit, name) in Self::NAMES {
            if rest & bit != 0 {
                write!(f, "{separator}{name}")?;
                separator = "|";
                rest &= !bit;
            }
        }
        if rest != 0 {
            write!(f, "{separator}{rest:#x}")?;
        }
        if self.0 == 0 {
            f.write_str("none")?;
        }
        Ok(())
    }
}

impl core::fmt::Debug for AttrMask {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "AttrMask({self})")
    }
}

/// Path MTU, with the numbers of `enum ibv_mtu`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[doc(alias = "ibv_mtu")]
pub enum Mtu {
    /// 256 bytes of payload a packet.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes: what fits an Ethernet MTU of 1500.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes: what fits jumbo frames and loopback.
    Mtu4096 = 5,
}

impl Mtu {
    /// All, smallest first.
    pub const ALL: [Mtu; 5] = [
        Mtu::Mtu256,
        Mtu::Mtu512,
        Mtu::Mtu1024,
        Mtu::Mtu2048,
        Mtu::Mtu4096,
    ];

    /// Payload bytes of a packet.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// The MTU of exactly so many bytes.
    pub fn from_bytes(bytes: u32) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|m| m.bytes() == bytes)
    }

    /// The MTU with the number of `enum ibv_mtu`.
    pub fn from_number(number: u32) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|&m| m as u32 == number)
    }

    /// The largest MTU with which packets, with the longest headers, fit an interface's
    /// MTU; 96 bytes are set aside (GRH, UDP, BTH, XRCETH, AtomicETH and ICRC).
    pub fn for_interface(mtu: u32) -> Mtu {
        let room = mtu.saturating_sub(96);
        Mtu::ALL
            .into_iter()
            .rev()
            .find(|m| m.bytes() <= room)
            .unwrap_or(Mtu::Mtu256)
    }
}

/// The path to the peer: what of `ibv_ah_attr` matters over UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[doc(alias = "ibv_ah_attr")]
pub struct AddressVector {
    /// The local address that packets come from (the source GID).
    pub local: IpAddr,
    /// The peer's address (the destination GID).
    pub remote: IpAddr,
    /// Traffic class: the TOS byte.
    pub traffic_class: u8,
    /// Hop limit (TTL).
    pub hop_limit: u8,
}

/// What a QP was created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_qp_cap")]
pub struct QpCap {
    /// Most outstanding send work requests.
    pub max_send_wr: u32,
    /// Most outstanding receives.
    pub max_recv_wr: u32,
    /// Most entries in a send work request.
    pub max_send_sge: u32,
    /// Most entries in a receive.
    pub max_recv_sge: u32,
    /// Most inline bytes in a send work request.
    pub max_inline_data: u32,
}

impl Default for QpCap {
    /// Queues of 128 requests of four entries, with 64 inline bytes.
    fn default() -> QpCap {
        QpCap {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        }
    }
}

/// The attributes. A modify looks only at those that its mask names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_qp_attr")]
pub struct QpAttr {
    /// State to go to.
    pub qp_state: QpState,
    /// State that the caller believes the QP is in.
    pub cur_qp_state: QpState,
    /// Payload bytes a packet, the same on both sides.
    pub path_mtu: Mtu,
    /// What peers may do through this QP.
    pub qp_access_flags: Access,
    /// P_Key table index: 0.
    pub pkey_index: u16,
    /// Port number: 1.
    pub port_num: u8,
    /// Q_Key (UD).
    pub qkey: Qkey,
    /// Path to the peer.
    pub ah_attr: Option<AddressVector>,
    /// The peer's QPN.
    pub dest_qp_num: Qpn,
    /// First PSN that the peer will send.
    pub rq_psn: Psn,
    /// First PSN to send.
    pub sq_psn: Psn,
    /// READs and atomics to have outstanding at the peer.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code that this side asks peers to wait for, 0..=31 (0 is 655 ms).
    pub min_rnr_timer: u8,
    /// Local ACK timeout code, 0..=31: 4.096 us times 2 to its power; 0 is forever.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs, 0..=7.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs, 0..=7; 7 is forever.
    pub rnr_retry: u8,
    /// Raise an event when the send queue is drained.
    pub en_sqd_async_notify: bool,
}

impl Default for QpAttr {
    fn default() -> Self {
        QpAttr {
            qp_state: QpState::Reset,
            cur_qp_state: QpState::Reset,
            path_mtu: Mtu::Mtu1024,
            qp_access_flags: Access::NONE,
            pkey_index: 0,
            port_num: 1,
            qkey: Qkey(0),
            ah_attr: None,
            dest_qp_num: Qpn::new(0),
            rq_psn: Psn::ZERO,
            sq_psn: Psn::ZERO,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            en_sqd_async_notify: false,
        }
    }
}

/// True of every path: both ends are there, and of one IP version.
pub(crate) fn check_path(path: Option<AddressVector>) -> Result<(), ModifyError> {
    let Some(path) = path else {
        return Err(ModifyError::Path(
            "no address is given (is_global with a GID is needed)",
        ));
    };
    if path.local.is_ipv4() != path.remote.is_ipv4() {
        return Err(ModifyError::Path(
            "the local and the remote GID are of different IP versions",
        ));
    }
    if path.remote.is_unspecified() || path.local.is_unspecified() {
        return Err(ModifyError::Path("an address is 0"));
    }
    Ok(())
}
