//! Names of numbers.

use core::ffi::{CStr, c_char, c_int};

const NODES: &[&CStr] = &[
    c"invalid node type",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: &[&CStr] = &[
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

const EVENTS: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const WR_OPCODES: &[&CStr] = &[
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];

const STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// Node types begin with -1, "unknown".
pub(crate) unsafe extern "C" fn ibv_node_type_str(number: c_int) -> *const c_char {
    name(NODES, number, c"unknown")
}

pub(crate) unsafe extern "C" fn ibv_port_state_str(number: c_int) -> *const c_char {
    name(PORT_STATES, number, c"unknown")
}

pub(crate) unsafe extern "C" fn ibv_event_type_str(number: c_int) -> *const c_char {
    name(EVENTS, number, c"unknown")
}

pub(crate) unsafe extern "C" fn ibv_wc_status_str(number: c_int) -> *const c_char {
    name(STATUSES, number, c"unknown")
}

pub(crate) unsafe extern "C" fn ibv_wr_opcode_str(number: c_int) -> *const c_char {
    name(WR_OPCODES, number, c"unknown")
}

fn name(names: &'static [&'static CStr], number: c_int, unknown: &'static CStr) -> *const c_char {
    let known = usize::try_from(number).ok().and_then(|n| names.get(n));
    known.unwrap_or(&unknown).as_ptr()
}
