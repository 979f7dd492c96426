//! Work requests and completions.

use core::ffi::{c_int, c_uint, c_void};

use super::c_structs;
use super::objects::{ibv_ah, ibv_mr, ibv_mw};

c_structs! {
    #![derive(Clone, Copy)]

    struct ibv_wc [48] {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        /// In network order; or the invalidated rkey, in host order.
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }

    struct ibv_sge [16] {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    struct ibv_data_buf [16] {
        addr: *mut c_void,
        length: usize,
    }

    /// `ibv_send_wr.wr.rdma`
    struct wr_rdma [16] {
        remote_addr: u64,
        rkey: u32,
    }

    /// `ibv_send_wr.wr.atomic`
    struct wr_atomic [32] {
        remote_addr: u64,
        compare_add: u64,
        swap: u64,
        rkey: u32,
    }

    /// `ibv_send_wr.wr.ud`
    struct wr_ud [16] {
        ah: *mut ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    }

    struct ibv_mw_bind_info [32] {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: c_uint,
    }

    struct ibv_mw_bind [48] {
        wr_id: u64,
        send_flags: c_uint,
        bind_info: ibv_mw_bind_info,
    }

    /// `ibv_send_wr.bind_mw`, in a union with what segmentation offload needs.
    struct wr_bind_mw [48] {
        mw: *mut ibv_mw,
        rkey: u32,
        bind_info: ibv_mw_bind_info,
    }

    struct ibv_send_wr [128] {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: c_int,
        send_flags: c_uint,
        /// In network order; or the rkey to invalidate, in host order.
        imm_data: u32,
        wr: ibv_send_wr_wr,
        /// `remote_srqn`, of XRC.
        qp_type: u32,
        bind_mw: wr_bind_mw,
    }

    struct ibv_recv_wr [32] {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }

    /// `ibv_ops_wr.tm.add`
    struct ops_wr_add [40] {
        recv_wr_id: u64,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        tag: u64,
        mask: u64,
    }

    /// `ibv_ops_wr.tm`
    struct ops_wr_tm [48] {
        unexpected_cnt: u32,
        handle: u32,
        add: ops_wr_add,
    }

    struct ibv_ops_wr [72] {
        wr_id: u64,
        next: *mut ibv_ops_wr,
        opcode: c_int,
        flags: c_int,
        tm: ops_wr_tm,
    }

    struct ibv_wc_tm_info [16] {
        tag: u64,
        r#priv: u32,
    }
}

/// Which of them, the opcode and the kind of QP say. All are numbers and pointers that may hold anything.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union ibv_send_wr_wr {
    pub(crate) rdma: wr_rdma,
    pub(crate) atomic: wr_atomic,
    pub(crate) ud: wr_ud,
}
