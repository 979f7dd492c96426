//! The limits of a device, in one table.

use urxe_core::mr::MrTable;
use urxe_core::qpn_table::QpnTable;
use urxe_core::work::MESSAGE_MAX;
use urxe_core::{QpLimits, Shard, ShardConfig};

/// How far atomics reach, with the numbers of `enum ibv_atomic_cap`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[doc(alias = "ibv_atomic_cap")]
pub enum AtomicCap {
    /// No atomics.
    None = 0,
    /// Atomic with respect to this device's other atomics.
    Hca = 1,
    /// Atomic with respect to the processor's atomics too.
    Glob = 2,
}

/// The limits of a device, as [`crate::Context::query_device`] returns them.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// let context = urxe::Context::open("127.81.0.2".parse().unwrap())?;
/// assert!(context.query_device().max_qp_wr >= 1024);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[doc(alias = "ibv_device_attr")]
#[doc(alias = "ibv_device_attr_ex")]
#[doc(alias = "ibv_cq_moderation_caps")]
pub struct DeviceAttr {
    /// Version of this library.
    pub fw_ver: &'static str,
    /// QPs.
    pub max_qp: u32,
    /// Work requests in a send or receive queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries in a work request.
    pub max_sge: u32,
    /// Inline bytes in a work request.
    pub max_inline_data: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Receives in a shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter/gather entries in a receive of a shared receive queue.
    pub max_srq_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries in a completion queue.
    pub max_cqe: u32,
    /// Memory regions and windows.
    pub max_mr: u32,
    /// Memory windows: as many as `max_mr`, together with regions.
    pub max_mw: u32,
    /// Memory windows of type 1 are there (`IBV_DEVICE_MEM_WINDOW`).
    pub mem_window: bool,
    /// Type 2 windows belong to the QP that bound them (`IBV_DEVICE_MEM_WINDOW_TYPE_2B`).
    pub mem_window_type_2b: bool,
    /// Regions may be registered on demand, the whole address space too.
    pub on_demand: bool,
    /// Bytes of device memory in one allocation.
    pub max_dm_size: u64,
    /// Bytes in a memory region.
    pub max_mr_size: u64,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics of a peer that a QP may have under way as responder.
    pub max_qp_rd_atom: u32,
    /// READs and atomics that a QP may have under way as requester.
    pub max_qp_init_rd_atom: u32,
    /// Bytes in a message.
    pub max_msg_sz: u64,
    /// How far atomics reach: up to the processor's own.
    pub atomic_cap: AtomicCap,
    /// Extended reliable connections are there (`IBV_DEVICE_XRC`).
    pub xrc: bool,
    /// ATOMIC WRITE is there (`IB_UVERBS_DEVICE_ATOMIC_WRITE`).
    pub atomic_write: bool,
    /// FLUSH can make bytes visible to all (`IB_UVERBS_DEVICE_FLUSH_GLOBAL`).
    pub flush_global: bool,
    /// FLUSH can make bytes survive (`IB_UVERBS_DEVICE_FLUSH_PERSISTENT`): those of files.
    pub flush_persistent: bool,
    /// Address handles: plain values, so there is no limit but memory.
    pub max_ah: u32,
    /// Multicast groups that QPs are attached to.
    pub max_mcast_grp: u32,
    /// QPs attached to one group.
    pub max_mcast_qp_attach: u32,
    /// Attachments of QPs to groups.
    pub max_total_mcast_qp_attach: u32,
    /// Entries in the P_Key table.
    pub max_pkeys: u16,
    /// Ports.
    pub phys_port_cnt: u8,
    /// Bits of a completion timestamp that count: all.
    pub completion_timestamp_mask: u64,
    /// Rate of the clock that completions are stamped with, in kHz: it counts nanoseconds.
    pub hca_core_clock: u64,
    /// Completions that a moderated event waits for, at most.
    pub max_cq_count: u16,
    /// Microseconds that it waits, at most.
    pub max_cq_period: u16,
}

pub(crate) const LIMITS: DeviceAttr = DeviceAttr {
    fw_ver: env!("CARGO_PKG_VERSION"),
    max_qp: QpnTable::<()>::LEN_MAX as u32,
    max_qp_wr: QpLimits::WR_MAX,
    max_sge: QpLimits::SGE_MAX,
    max_inline_data: QpLimits::INLINE_MAX,
    max_srq: QpnTable::<()>::LEN_MAX as u32,
    max_srq_wr: QpLimits::WR_MAX,
    max_srq_sge: QpLimits::SGE_MAX,
    max_cq: 1 << 16,
    max_cqe: 1 << 22,
    max_mr: MrTable::REGIONS_MAX as u32,
    max_mw: MrTable::REGIONS_MAX as u32,
    mem_window: true,
    mem_window_type_2b: true,
    on_demand: true,
    max_dm_size: 1 << 30,
    max_mr_size: i64::MAX as u64,
    max_pd: 1 << 16,
    max_qp_rd_atom: ShardConfig::RD_ATOMIC_MAX as u32,
    max_qp_init_rd_atom: ShardConfig::RD_ATOMIC_MAX as u32,
    max_msg_sz: MESSAGE_MAX,
    // Done by the processor's instructions on the program's own memory.
    atomic_cap: AtomicCap::Glob,
    xrc: true,
    atomic_write: true,
    flush_global: true,
    flush_persistent: cfg!(target_os = "linux"),
    max_ah: i32::MAX as u32,
    max_mcast_grp: Shard::GROUPS_MAX as u32,
    max_mcast_qp_attach: QpnTable::<()>::LEN_MAX as u32,
    max_total_mcast_qp_attach: (Shard::GROUPS_MAX * QpnTable::<()>::LEN_MAX) as u32,
    max_pkeys: 1,
    phys_port_cnt: 1,
    completion_timestamp_mask: u64::MAX,
    hca_core_clock: 1_000_000,
    max_cq_count: u16::MAX,
    max_cq_period: u16::MAX,
};
