//! Queries on a context's device and port.

use core::ffi::{c_int, c_void};
use core::ptr;

use urxe::{AtomicCap, DeviceAttr, PortAttr, PortSpeed, TmCap};

use super::gid::table_len;
use crate::device::{Device, copy_text};
use crate::errno::{Errno, number, store};
use crate::layout::{
    CStruct, ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_port_attr, ibv_values_ex,
};
use crate::object::Context;

/// `IBV_DEVICE_CURR_QP_STATE_MOD`, `_SYS_IMAGE_GUID`, `_RC_RNR_NAK_GEN`, `_SRQ_RESIZE`, `_MEM_WINDOW`, `_XRC`,
/// `_MEM_MGT_EXTENSIONS`, `_MEM_WINDOW_TYPE_2B`
const CAP_FLAGS: u32 = 1 << 7 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 20 | 1 << 21 | 1 << 24;
/// `IB_UVERBS_DEVICE_FLUSH_GLOBAL`, `_FLUSH_PERSISTENT`, `_ATOMIC_WRITE`, beyond the old flags.
const PLACEMENT: u64 = 1 << 38 | 1 << 39 | 1 << 40;
/// On-demand paging is how all memory is treated here: nothing is pinned. `IBV_ODP_SUPPORT`, `_IMPLICIT`, and
/// what each service can do (`IBV_ODP_SUPPORT_SEND` and so on).
const ODP: u64 = 1 << 0 | 1 << 1;
/// Placement (`_FLUSH`, `_ATOMIC_WRITE`), too.
const ODP_RC: u32 = 0xff;
const ODP_UC: u32 = 1 << 0 | 1 << 1 | 1 << 2;
const ODP_UD: u32 = 1 << 0 | 1 << 1 | 1 << 5;
/// `IBV_TM_CAP_RC`: tag matching for reliable connections.
const TM_CAP_RC: u32 = 1 << 0;
/// `IBV_PORT_PHYS_STATE` link up, and disabled.
const PHYS_LINK_UP: u8 = 5;
const PHYS_DISABLED: u8 = 3;
/// `IBV_LINK_LAYER_ETHERNET`
const LINK_LAYER_ETHERNET: u8 = 2;
/// `IBV_SPEED_NDR`: a lane's speed, where it has one byte, can be no more.
const LANE_SPEED_MAX: u16 = 128;
/// Bytes that the exported `ibv_query_port` may write: its struct ended with `flags`.
const OLD_PORT_ATTR: usize = 48;

pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    // SAFETY: a place for the attributes, by the same rules.
    unsafe { attr.write(device_attr(&context.urxe.query_device(), context.device)) };
    0
}

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    let limits = context.urxe.query_device();
    let mut whole = ibv_device_attr_ex::zeroed();
    whole.orig_attr = device_attr(&limits, context.device);
    whole.odp_caps.general_caps = ODP;
    whole.odp_caps.per_transport_caps = [ODP_RC, ODP_UC, ODP_UD];
    whole.xrc_odp_caps = ODP_RC;
    whole.max_dm_size = limits.max_dm_size;
    whole.completion_timestamp_mask = limits.completion_timestamp_mask;
    whole.hca_core_clock = limits.hca_core_clock;
    whole.device_cap_flags_ex = u64::from(CAP_FLAGS) | PLACEMENT;
    whole.cq_mod_caps.max_cq_count = limits.max_cq_count;
    whole.cq_mod_caps.max_cq_period = limits.max_cq_period;
    whole.tm_caps = [
        TmCap::RNDV_HDR_MAX,
        TmCap::NUM_TAGS_MAX,
        TM_CAP_RC,
        TmCap::OPS_MAX,
        TmCap::SGE_MAX,
    ];
    whole.phys_port_cnt_ex = u32::from(limits.phys_port_cnt);
    if size < size_of::<ibv_device_attr>() {
        return number(Err(Errno::INVAL));
    }
    // SAFETY: the program says how much room it has.
    unsafe { write_part(&whole, attr, size) };
    0
}

/// Writes as much as there is room for.
///
/// # Safety
/// `room` bytes must be writable at `to`.
unsafe fn write_part<T: CStruct>(whole: &T, to: *mut T, room: usize) {
    let len = room.min(size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(whole).cast::<u8>(), to.cast::<u8>(), len);
        if room > len {
            to.cast::<u8>().add(len).write_bytes(0, room - len);
        }
    }
}

fn device_attr(limits: &DeviceAttr, device: &Device) -> ibv_device_attr {
    let int = |count: u32| c_int::try_from(count).unwrap_or(c_int::MAX);
    let mut attr = ibv_device_attr::zeroed();
    copy_text(&mut attr.fw_ver, limits.fw_ver);
    attr.node_guid = device.guid.to_be();
    attr.sys_image_guid = device.guid.to_be();
    attr.max_mr_size = limits.max_mr_size;
    // Any page size from 4 KiB up: memory is not translated.
    attr.page_size_cap = !0xfff;
    (attr.vendor_id, attr.vendor_part_id) = device.source.likeness().vendor();
    attr.device_cap_flags = CAP_FLAGS;
    attr.max_qp = int(limits.max_qp);
    attr.max_qp_wr = int(limits.max_qp_wr);
    attr.max_sge = int(limits.max_sge);
    attr.max_sge_rd = int(limits.max_sge);
    attr.max_cq = int(limits.max_cq);
    attr.max_cqe = int(limits.max_cqe);
    attr.max_mr = int(limits.max_mr);
    attr.max_mw = int(limits.max_mw);
    attr.max_pd = int(limits.max_pd);
    attr.max_qp_rd_atom = int(limits.max_qp_rd_atom);
    attr.max_res_rd_atom = int(limits.max_qp_rd_atom.saturating_mul(limits.max_qp));
    attr.max_qp_init_rd_atom = int(limits.max_qp_init_rd_atom);
    // They are atomic with respect to the processor too (`Glob`). But adapters, and Linux's
    // rdma_rxe, say "HCA", and UCX uses atomics where it finds this very value.
    attr.atomic_cap = limits.atomic_cap.min(AtomicCap::Hca) as c_int;
    attr.max_ah = int(limits.max_ah);
    attr.max_mcast_grp = int(limits.max_mcast_grp);
    attr.max_mcast_qp_attach = int(limits.max_mcast_qp_attach);
    attr.max_total_mcast_qp_attach = int(limits.max_total_mcast_qp_attach);
    attr.max_srq = int(limits.max_srq);
    attr.max_srq_wr = int(limits.max_srq_wr);
    attr.max_srq_sge = int(limits.max_srq_sge);
    attr.max_pkeys = limits.max_pkeys;
    attr.phys_port_cnt = limits.phys_port_cnt;
    attr
}

pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    number(port_attr(context, port).map(|whole| {
        // SAFETY: the program says how much room it has.
        unsafe { write_part(&whole, attr, size) };
    }))
}

/// What programs call that were built before the attributes grew.
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the program has room for the structure as it was then.
    unsafe { query_port(context, port, attr, OLD_PORT_ATTR) }
}

/// In units of 100 Mb/s: what [`port_attr`] says in lanes and their speed.
pub(crate) unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    let port = u8::try_from(port).map_err(|_| Errno::INVAL);
    let found = port.and_then(|port| Ok(context.urxe.query_port(port)?));
    let speed_of = |port: PortAttr| u64::from(port.speed.mbps() / 100);
    // SAFETY: a place for a number, by the rules of the function.
    number(unsafe { store(speed, found.map(speed_of)) })
}

fn port_attr(context: &Context, port: u8) -> Result<ibv_port_attr, Errno> {
    let gid_tbl_len = table_len(context);
    let port = context.urxe.query_port(port)?;
    let mut attr = ibv_port_attr::zeroed();
    attr.state = port.state as c_int;
    attr.max_mtu = port.max_mtu as c_int;
    attr.active_mtu = port.active_mtu as c_int;
    attr.gid_tbl_len = gid_tbl_len as c_int;
    // `IBV_PORT_IP_BASED_GIDS`
    attr.port_cap_flags = 1 << 26;
    attr.max_msg_sz = u32::try_from(port.max_msg_sz).unwrap_or(u32::MAX);
    attr.pkey_tbl_len = port.pkey_tbl_len;
    attr.max_vl_num = 1;
    set_speed(&mut attr, port.speed);
    attr.phys_state = match port.state {
        urxe::PortState::Active => PHYS_LINK_UP,
        urxe::PortState::Down => PHYS_DISABLED,
    };
    attr.link_layer = LINK_LAYER_ETHERNET;
    Ok(attr)
}

fn set_speed(attr: &mut ibv_port_attr, speed: PortSpeed) {
    // `IBV_WIDTH_1X`, `IBV_WIDTH_4X`
    attr.active_width = if speed.lanes() == 1 { 1 } else { 2 };
    attr.active_speed = speed.lane_speed().min(LANE_SPEED_MAX) as u8;
    attr.active_speed_ex = u32::from(speed.lane_speed());
}

pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    const RAW_CLOCK: u32 = 1;
    // SAFETY: a context and a structure, by the rules of the function.
    let (context, values) = unsafe { (Context::of(context), &mut *values) };
    if values.comp_mask & !RAW_CLOCK != 0 {
        return number(Err(Errno::INVAL));
    }
    let now = context.urxe.query_rt_values().map_err(Errno::from);
    number(now.map(|now| {
        let ns = now.raw_clock_ns as i64;
        values.raw_clock = [ns / 1_000_000_000, ns % 1_000_000_000];
        values.comp_mask = RAW_CLOCK;
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_told_in_lanes() {
        for (speed, width, lane_speed, extended) in [
            ("2.5", 1, 1, 1),
            ("100", 2, 32, 32),
            ("400", 2, 128, 128),
            // Linux says it so, too, to programs that ask for one byte.
            ("800", 2, 128, 256),
        ] {
            let mut attr = ibv_port_attr::zeroed();
            set_speed(&mut attr, speed.parse().expect("a speed"));
            let told = (attr.active_width, attr.active_speed, attr.active_speed_ex);
            assert_eq!(told, (width, lane_speed, extended), "{speed}");
        }
    }
}
