//! Making objects.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::{MARGIN, MEMORY, OBJECTS, Session};
use crate::layout::{
    CStruct, ibv_ah_attr, ibv_alloc_dm_attr, ibv_cq_init_attr_ex, ibv_gid,
    ibv_parent_domain_init_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_qp_open_attr, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_xrcd_init_attr,
};
use crate::verbs::{ah, comp_channel, cq, dm, gid, mr, mw, pd, qp_create, srq, xrcd};

/// Notes what a function gave, unless that is nothing.
fn note<T>(list: &mut Vec<*mut T>, object: *mut T) {
    if !object.is_null() {
        list.push(object);
    }
}

impl Session<'_> {
    pub(super) fn create(&mut self, kind: u8) {
        match kind {
            0 if self.channels.len() < OBJECTS => {
                let context = self.context();
                // SAFETY: a context.
                let made = unsafe { comp_channel::ibv_create_comp_channel(context) };
                note(&mut self.channels, made);
            }
            1 if self.pds.len() < OBJECTS => self.create_domain(),
            2 if self.cqs.len() < OBJECTS => self.create_cq(),
            3 if self.srqs.len() < OBJECTS => self.create_srq(),
            4 | 5 if self.qps.len() < OBJECTS => self.create_qp(),
            6 if self.ahs.len() < OBJECTS => self.create_ah(),
            7 | 8 if self.mrs.len() < OBJECTS => self.create_mr(),
            9 if self.mws.len() < OBJECTS => {
                let (pd, kind) = (self.some(|s| &s.pds), self.script.byte() % 4);
                if !pd.is_null() {
                    // SAFETY: a domain.
                    let made = unsafe { mw::alloc_mw(pd, c_int::from(kind)) };
                    note(&mut self.mws, made);
                }
            }
            10 if self.dms.len() < OBJECTS => {
                let mut attr = ibv_alloc_dm_attr {
                    length: self.script.number(),
                    log_align_req: self.script.value(),
                    comp_mask: u32::from(self.script.one_in(16)),
                };
                let context = self.context();
                // SAFETY: a context and attributes.
                let made = unsafe { dm::alloc_dm(context, &raw mut attr) };
                note(&mut self.dms, made);
            }
            _ => {}
        }
    }

    /// Of protection, of threads, of XRC.
    fn create_domain(&mut self) {
        let context = self.context();
        match self.script.byte() % 8 {
            0 => {
                // SAFETY: a context.
                let made = unsafe { pd::alloc_td(context, ptr::null_mut()) };
                note(&mut self.tds, made);
            }
            1 => {
                let mut attr = ibv_parent_domain_init_attr::zeroed();
                (attr.pd, attr.td) = (self.some(|s| &s.pds), self.some(|s| &s.tds));
                attr.comp_mask = self.script.value() % 5;
                // SAFETY: a context and attributes with a domain, or null.
                let made = unsafe { pd::alloc_parent_domain(context, &raw mut attr) };
                note(&mut self.pds, made);
            }
            2 | 3 => {
                let mut attr = ibv_xrcd_init_attr {
                    comp_mask: 3 - u32::from(self.script.one_in(16)),
                    fd: if self.script.one_in(8) { 1_000_000 } else { -1 },
                    oflags: [libc::O_CREAT, libc::O_CREAT | libc::O_EXCL, 0]
                        [usize::from(self.script.byte() % 3)],
                };
                // SAFETY: a context and attributes.
                let made = unsafe { xrcd::open_xrcd(context, &raw mut attr) };
                note(&mut self.xrcds, made);
            }
            _ => {
                // SAFETY: a context.
                let made = unsafe { pd::ibv_alloc_pd(context) };
                note(&mut self.pds, made);
            }
        }
    }

    fn create_cq(&mut self) {
        let context = self.context();
        let channel = match self.script.byte() % 2 {
            0 => ptr::null_mut(),
            _ => self.some(|s| &s.channels),
        };
        let (cqe, vector) = (self.script.value(), self.script.value() % 3);
        if self.script.byte().is_multiple_of(2) {
            // SAFETY: a context, and a channel or null.
            let made = unsafe {
                cq::ibv_create_cq(
                    context,
                    cqe as c_int,
                    ptr::null_mut(),
                    channel,
                    vector as c_int,
                )
            };
            return note(&mut self.cqs, made);
        }
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        (attr.cqe, attr.channel, attr.comp_vector) = (cqe, channel, vector);
        attr.wc_flags = u64::from(self.script.value()) & 0xfff;
        attr.comp_mask = self.script.value() % 5;
        attr.flags = self.script.value() % 3;
        // SAFETY: a context and attributes.
        let made = unsafe { cq::create_cq_ex(context, &raw mut attr) };
        note(&mut self.cqs, made.cast());
        note(&mut self.extended, made.cast());
    }

    fn create_srq(&mut self) {
        let attr = ibv_srq_attr {
            max_wr: self.script.value(),
            max_sge: self.script.value(),
            srq_limit: self.script.value(),
        };
        let pd = self.some(|s| &s.pds);
        if pd.is_null() {
            return;
        }
        if self.script.byte().is_multiple_of(2) {
            let mut init = ibv_srq_init_attr::zeroed();
            init.attr = attr;
            // SAFETY: a domain and attributes.
            let made = unsafe { srq::ibv_create_srq(pd, &raw mut init) };
            return note(&mut self.srqs, made);
        }
        let mut init = ibv_srq_init_attr_ex::zeroed();
        (init.attr, init.pd) = (attr, pd);
        (init.xrcd, init.cq) = (self.some(|s| &s.xrcds), self.some(|s| &s.cqs));
        init.srq_type = c_int::from(self.script.byte() % 3);
        init.comp_mask = 0xf & !(self.script.value() >> 8);
        let context = self.context();
        // SAFETY: a context and attributes with objects, or null.
        let made = unsafe { srq::create_srq_ex(context, &raw mut init) };
        note(&mut self.srqs, made);
    }

    fn cap(&mut self) -> ibv_qp_cap {
        ibv_qp_cap {
            max_send_wr: self.script.value(),
            max_recv_wr: self.script.value(),
            max_send_sge: self.script.value() % 34,
            max_recv_sge: self.script.value() % 34,
            max_inline_data: self.script.value(),
        }
    }

    fn create_qp(&mut self) {
        let qp_type = [2, 2, 2, 3, 4, 4, 9, 10][usize::from(self.script.byte() % 8)];
        let srq = match self.script.byte() % 4 {
            0 => self.some(|s| &s.srqs),
            _ => ptr::null_mut(),
        };
        let (send_cq, recv_cq) = (self.some(|s| &s.cqs), self.some(|s| &s.cqs));
        let (pd, cap) = (self.some(|s| &s.pds), self.cap());
        let sq_sig_all = c_int::from(self.script.byte() % 2);
        if self.script.byte().is_multiple_of(2) && !pd.is_null() {
            let mut init = ibv_qp_init_attr::zeroed();
            (init.send_cq, init.recv_cq, init.srq) = (send_cq, recv_cq, srq);
            (init.cap, init.qp_type, init.sq_sig_all) = (cap, qp_type, sq_sig_all);
            // SAFETY: a domain, and attributes with objects, or null.
            let made = unsafe { qp_create::ibv_create_qp(pd, &raw mut init) };
            return note(&mut self.qps, made);
        }
        let mut init = ibv_qp_init_attr_ex::zeroed();
        (init.send_cq, init.recv_cq, init.srq) = (send_cq, recv_cq, srq);
        (init.cap, init.qp_type, init.sq_sig_all) = (cap, qp_type, sq_sig_all);
        (init.pd, init.xrcd) = (pd, self.some(|s| &s.xrcds));
        init.comp_mask = 0x47 & !(self.script.value() >> 8);
        init.create_flags = if self.script.one_in(8) { 2 } else { 0 };
        init.send_ops_flags = 0x1bff & !u64::from(self.script.value() >> 8);
        let context = self.context();
        // SAFETY: a context, and attributes with objects, or null.
        let made = unsafe { qp_create::create_qp_ex(context, &raw mut init) };
        note(&mut self.qps, made);
        if !made.is_null() && self.script.one_in(4) && self.qps.len() < OBJECTS {
            self.open_qp(init.xrcd);
        }
    }

    /// Another handle of a target, or what is none.
    fn open_qp(&mut self, xrcd: *mut crate::layout::ibv_xrcd) {
        let mut attr = ibv_qp_open_attr::zeroed();
        let other = self.some(|s| &s.qps);
        attr.comp_mask = 0xb;
        // SAFETY: a queue pair, which the list is not without.
        attr.qp_num = unsafe { (*other).qp_num };
        (attr.xrcd, attr.qp_type) = (xrcd, 10);
        let context = self.context();
        // SAFETY: a context, and attributes with a domain, or null.
        let made = unsafe { qp_create::open_qp(context, &raw mut attr) };
        note(&mut self.qps, made);
    }

    /// A path to a host of the network, or to none.
    pub(super) fn path(&mut self) -> ibv_ah_attr {
        let mut attr = ibv_ah_attr::zeroed();
        let mut peer = ibv_gid { raw: [0; 2] };
        let context = self.contexts[usize::from(self.script.byte() % 2)];
        // SAFETY: a context, and a place for a GID.
        unsafe { gid::ibv_query_gid(context, 1, 0, &raw mut peer) };
        (attr.grh.dgid, attr.is_global, attr.port_num) = (peer, 1, 1);
        attr.grh.hop_limit = 64;
        match self.script.byte() {
            0 => attr.grh.dgid.raw[1] ^= 1 << (self.script.byte() % 64),
            1 => attr.is_global = 0,
            2 => attr.port_num = self.script.byte(),
            3 => attr.grh.sgid_index = self.script.byte(),
            4 => attr.grh.traffic_class = self.script.byte(),
            5 => attr.grh.dgid = ibv_gid { raw: [0xff; 2] },
            _ => {}
        }
        attr
    }

    fn create_ah(&mut self) {
        let (pd, mut attr) = (self.some(|s| &s.pds), self.path());
        if !pd.is_null() {
            // SAFETY: a domain and attributes.
            let made = unsafe { ah::ibv_create_ah(pd, &raw mut attr) };
            note(&mut self.ahs, made);
        }
    }

    /// A part of the memory, all of it, nothing, or device memory.
    fn create_mr(&mut self) {
        let (pd, access) = (self.some(|s| &s.pds), self.access());
        if pd.is_null() {
            return;
        }
        let (addr, length) = self.part();
        let made = match self.script.byte() % 16 {
            // SAFETY: a domain.
            0 => unsafe { mr::alloc_null_mr(pd) },
            1 => {
                self.has_all = true;
                // SAFETY: a domain.
                unsafe { mr::ibv_reg_mr(pd, ptr::null_mut(), usize::MAX, 0x40 | access as c_int) }
            }
            2 | 3 => {
                let dm = self.some(|s| &s.dms);
                if dm.is_null() {
                    return;
                }
                let (offset, length) = (self.script.value(), self.script.number());
                // SAFETY: a domain and device memory.
                unsafe { dm::reg_dm_mr(pd, dm, u64::from(offset), length, access) }
            }
            4 => {
                let iova = u64::from_be_bytes(self.script.array());
                // SAFETY: a domain, and memory that lives as long as this session.
                unsafe { mr::ibv_reg_mr_iova2(pd, addr, length, iova, access) }
            }
            // SAFETY: as above.
            _ => unsafe { mr::ibv_reg_mr(pd, addr, length, access as c_int) },
        };
        note(&mut self.mrs, made);
    }

    pub(super) fn access(&mut self) -> u32 {
        match self.script.byte() % 8 {
            0 => self.script.value(),
            1 => 1,
            2 => 0x11f,
            _ => 0xf,
        }
    }

    pub(super) fn part(&mut self) -> (*mut c_void, usize) {
        let from = self.script.number() % MEMORY;
        let length = match self.script.byte() % 8 {
            0 => self.script.number() % (MEMORY - from),
            1 => 0,
            2 => usize::MAX,
            _ => MEMORY - from,
        };
        let addr = self.memory.as_mut_ptr().wrapping_add(MARGIN + from);
        (addr.cast(), length)
    }
}
