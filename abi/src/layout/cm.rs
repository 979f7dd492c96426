//! The structures of `rdma/rdma_cma.h`.

use core::ffi::{c_char, c_int, c_void};

use super::attrs::{ibv_ah_attr, ibv_gid};
use super::c_structs;
use super::objects::{ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_srq};

/// `struct sockaddr_storage`, as large and as aligned.
pub(crate) type Storage = [u64; 16];

c_structs! {
    struct rdma_event_channel [4] {
        fd: c_int,
    }

    struct rdma_ib_addr [40] {
        sgid: ibv_gid,
        dgid: ibv_gid,
        pkey: u16,
    }

    /// Unions of socket addresses in C: these are their largest members.
    struct rdma_addr [296] {
        src_storage: Storage,
        dst_storage: Storage,
        addr: rdma_ib_addr,
    }

    struct rdma_route [312] {
        addr: rdma_addr,
        path_rec: *mut ibv_sa_path_rec,
        num_paths: c_int,
    }

    struct rdma_cm_id [416] {
        verbs: *mut ibv_context,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        qp: *mut ibv_qp,
        route: rdma_route,
        ps: c_int,
        port_num: u8,
        event: *mut rdma_cm_event,
        send_cq_channel: *mut ibv_comp_channel,
        send_cq: *mut ibv_cq,
        recv_cq_channel: *mut ibv_comp_channel,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        pd: *mut ibv_pd,
        qp_type: c_int,
    }

    #[derive(Clone, Copy)]
    struct rdma_conn_param [24] {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }

    #[derive(Clone, Copy)]
    struct rdma_ud_param [56] {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: ibv_ah_attr,
        qp_num: u32,
        qkey: u32,
    }

    struct rdma_cm_event [80] {
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: c_int,
        status: c_int,
        param: rdma_event_param,
    }

    struct rdma_addrinfo [96] {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: u32,
        ai_dst_len: u32,
        ai_src_addr: *mut libc::sockaddr,
        ai_dst_addr: *mut libc::sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut rdma_addrinfo,
    }

    struct rdma_cm_join_mc_attr_ex [16] {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut libc::sockaddr,
    }

    struct ibv_sa_path_rec [64] {
        dgid: ibv_gid,
        sgid: ibv_gid,
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
}

/// What an event says beside its number: which of them, the port space tells.
#[repr(C)]
pub(crate) union rdma_event_param {
    pub(crate) conn: rdma_conn_param,
    pub(crate) ud: rdma_ud_param,
    pub(crate) arg: u64,
}
