//! Queue pairs through their states, and other things that are changed.

use core::ffi::c_int;
use core::ptr;

use super::{Session, check_result};
use crate::layout::{
    CStruct, ibv_cq, ibv_moderate_cq, ibv_modify_cq_attr, ibv_mw_bind, ibv_mw_bind_info, ibv_qp,
    ibv_qp_attr, ibv_srq_attr,
};
use crate::verbs::{cq, mr, qp, srq};

/// `enum ibv_qp_attr_mask` for the usual steps to INIT, RTR and RTS, by the type of the QP.
const STEPS: [(c_int, [c_int; 3]); 3] = [
    (2, [0x39, 0x12_9181, 0x1_2e01]),
    (3, [0x39, 0x10_1181, 0x1_0001]),
    (4, [0x71, 0x1, 0x1_0001]),
];

const UD: c_int = 4;
const QKEY: u32 = 0x111;

impl Session<'_> {
    /// Leads two to RTS, each other's peers, unless one of the steps says no.
    pub(super) fn connect(&mut self) {
        let ends = [self.some(|s| &s.qps), self.some(|s| &s.qps)];
        if ends[0].is_null() {
            return;
        }
        for (qp, peer) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            // SAFETY: queue pairs that are alive.
            let (qp_type, peer_number) = unsafe { ((*qp).qp_type, (*peer).qp_num) };
            let steps = STEPS.iter().find(|(of, _)| *of == qp_type);
            let masks = steps.unwrap_or(&STEPS[0]).1;
            for (state, mask) in (1..).zip(masks) {
                let mut attr = self.usual(peer);
                (attr.qp_state, attr.dest_qp_num) = (state, peer_number);
                // SAFETY: a queue pair and attributes.
                let result = unsafe { qp::ibv_modify_qp(qp, &raw mut attr, mask) };
                if !check_result(result) {
                    break;
                }
            }
        }
    }

    /// Attributes that lead to a peer.
    fn usual(&mut self, peer: *mut ibv_qp) -> ibv_qp_attr {
        let mut attr = ibv_qp_attr::zeroed();
        attr.ah_attr = self.path();
        let mut gid = crate::layout::ibv_gid { raw: [0; 2] };
        // SAFETY: a queue pair's context, and a place for a GID.
        let known =
            unsafe { crate::verbs::gid::ibv_query_gid((*peer).context, 1, 0, &raw mut gid) };
        if known == 0 && !self.script.one_in(16) {
            attr.ah_attr.grh.dgid = gid;
            (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
            attr.ah_attr.grh.sgid_index = 0;
        }
        (attr.port_num, attr.qkey, attr.path_mtu) =
            (1, QKEY, 1 + c_int::from(self.script.byte() % 5));
        attr.qp_access_flags = 0xf;
        (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (4, 4);
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (10, 2, 2);
        attr.min_rnr_timer = 1;
        attr
    }

    pub(super) fn modify(&mut self) {
        match self.script.byte() % 8 {
            0 => self.modify_srq(),
            1 => self.modify_cq(),
            2 => self.modify_mr(),
            _ => self.modify_qp(),
        }
    }

    /// Any attributes, with the mask of a usual step or any other.
    fn modify_qp(&mut self) {
        let (qp, peer) = (self.some(|s| &s.qps), self.some(|s| &s.qps));
        if qp.is_null() {
            return;
        }
        let mut attr = self.usual(peer);
        attr.qp_state = c_int::from(self.script.byte() % 8);
        attr.cur_qp_state = c_int::from(self.script.byte() % 8);
        // SAFETY: a queue pair that is alive.
        attr.dest_qp_num = unsafe { (*peer).qp_num } ^ u32::from(self.script.one_in(8));
        if self.script.one_in(4) {
            attr.path_mtu = c_int::from(self.script.byte());
            (attr.qkey, attr.rq_psn, attr.sq_psn) = (
                self.script.value(),
                self.script.value(),
                self.script.value(),
            );
            attr.qp_access_flags = self.script.value();
            [
                attr.max_rd_atomic,
                attr.max_dest_rd_atomic,
                attr.min_rnr_timer,
            ] = self.script.array();
            [attr.timeout, attr.retry_cnt, attr.rnr_retry] = self.script.array();
            [attr.port_num, attr.en_sqd_async_notify] = self.script.array();
            attr.pkey_index = self.script.number() as u16;
        }
        let mask = match self.script.byte() % 8 {
            0 => self.script.value() as c_int,
            1 => 1 << (self.script.byte() % 22),
            n => STEPS[usize::from(n) % 3].1[usize::from(self.script.byte() % 3)],
        };
        let mask = if self.script.one_in(4) { 1 } else { mask };
        // SAFETY: a queue pair and attributes.
        let result = unsafe { qp::ibv_modify_qp(qp, &raw mut attr, mask) };
        if check_result(result) && mask & 1 != 0 {
            // SAFETY: a queue pair that is alive.
            assert_eq!(unsafe { (*qp).state }, attr.qp_state);
        }
    }

    fn modify_srq(&mut self) {
        let srq = self.some(|s| &s.srqs);
        if srq.is_null() {
            return;
        }
        let mut attr = ibv_srq_attr {
            max_wr: self.script.value(),
            max_sge: self.script.value(),
            srq_limit: self.script.value(),
        };
        let mask = c_int::from(self.script.byte() % 8);
        // SAFETY: a queue and attributes.
        check_result(unsafe { srq::ibv_modify_srq(srq, &raw mut attr, mask) });
    }

    fn modify_cq(&mut self) {
        let cq: *mut ibv_cq = self.some(|s| &s.cqs);
        if cq.is_null() {
            return;
        }
        if self.script.byte().is_multiple_of(2) {
            let cqe = self.script.value() as c_int;
            // SAFETY: a queue.
            check_result(unsafe { cq::ibv_resize_cq(cq, cqe) });
            return;
        }
        let mut attr = ibv_modify_cq_attr {
            attr_mask: self.script.value() % 4,
            moderate: ibv_moderate_cq {
                cq_count: self.script.value() as u16,
                cq_period: self.script.value() as u16,
            },
        };
        // SAFETY: a queue and attributes.
        check_result(unsafe { cq::modify_cq(cq, &raw mut attr) });
    }

    fn modify_mr(&mut self) {
        let (mr, pd) = (self.some(|s| &s.mrs), self.some(|s| &s.pds));
        if mr.is_null() {
            return;
        }
        let (flags, access) = (c_int::from(self.script.byte() % 16), self.access() as c_int);
        let (addr, length) = self.part();
        // SAFETY: a region, a domain or null, and memory that lives as long as this session.
        let result = unsafe { mr::ibv_rereg_mr(mr, flags, pd, addr, length, access) };
        // `enum ibv_rereg_mr_err_code`
        assert!((-5..=0).contains(&result), "rereg: {result}");
    }

    /// A window of type 1.
    pub(super) fn bind(&mut self) {
        let (qp, mw, mr) = (
            self.some(|s| &s.qps),
            self.some(|s| &s.mws),
            self.some(|s| &s.mrs),
        );
        if qp.is_null() || mw.is_null() {
            return;
        }
        // SAFETY: a window that is alive. The header looks at this before it calls.
        if unsafe { (*mw).r#type } != 1 {
            return;
        }
        let wr_id = self.number_works(1);
        let mut bind = ibv_mw_bind {
            wr_id,
            send_flags: u32::from(self.script.byte()),
            bind_info: self.bind_info(mr),
        };
        // SAFETY: objects that are alive; every context has the function.
        let result = unsafe {
            let bind_mw = (*(*qp).context).ops.bind_mw.expect("it has it");
            bind_mw(qp, mw, &raw mut bind)
        };
        if !check_result(result) {
            self.refuse_works(wr_id);
        }
    }

    pub(super) fn bind_info(&mut self, mr: *mut crate::layout::ibv_mr) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: if self.script.one_in(8) {
                ptr::null_mut()
            } else {
                mr
            },
            addr: self.place(),
            length: u64::from(self.script.value()),
            mw_access_flags: self.access(),
        }
    }

    /// The Q_Key that queue pairs have.
    pub(super) fn qkey(&mut self) -> u32 {
        if self.script.one_in(8) {
            self.script.value()
        } else {
            QKEY
        }
    }

    pub(super) fn is_datagram(qp: *mut ibv_qp) -> bool {
        // SAFETY: a queue pair that is alive.
        unsafe { (*qp).qp_type == UD }
    }
}
