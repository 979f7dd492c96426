//! Work requests and completions.

use core::ffi::c_int;
use core::ptr;

use super::{MARGIN, MEMORY, Session, check_result};
use crate::layout::{
    CStruct, ibv_cq, ibv_cq_ex, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_send_wr_wr, ibv_sge, ibv_wc,
    wr_atomic, wr_bind_mw, wr_rdma, wr_ud,
};

/// `IBV_SEND_INLINE`
const INLINE: u32 = 1 << 3;
/// Requests of one list, and entries of one request.
const LIST: usize = 3;
/// Bytes of an entry where a region has all there is.
const SHORT: u32 = 2000;

impl Session<'_> {
    /// A key of a region or a window, or none.
    pub(super) fn key(&mut self, is_remote: bool) -> u32 {
        let (mr, mw) = (self.some(|s| &s.mrs), self.some(|s| &s.mws));
        if self.script.one_in(16) {
            return self.script.value();
        }
        // SAFETY: objects that are alive.
        unsafe {
            match (mr.is_null(), mw.is_null()) {
                (_, false) if is_remote && self.script.one_in(4) => (*mw).rkey,
                (false, _) if is_remote => (*mr).rkey,
                (false, _) => (*mr).lkey,
                _ => 0,
            }
        }
    }

    /// An entry that may name anything, as its key is looked at; of an inline request, bytes that are there.
    pub(super) fn entry(&mut self, is_inline: bool) -> ibv_sge {
        let addr = if self.script.one_in(16) && !is_inline {
            u64::from(self.script.value())
        } else {
            self.place()
        };
        let length = self.script.value();
        ibv_sge {
            addr,
            length: if self.has_all { length % SHORT } else { length },
            lkey: self.key(false),
        }
    }

    fn entries(&mut self, is_inline: bool) -> [ibv_sge; LIST] {
        core::array::from_fn(|_| self.entry(is_inline))
    }

    fn send_request(&mut self, qp: *mut ibv_qp) -> ibv_send_wr {
        let mut wr = ibv_send_wr::zeroed();
        wr.opcode = c_int::from(self.script.byte() % 17);
        wr.send_flags = u32::from(self.script.byte() % 32);
        wr.imm_data = match self.script.byte() % 4 {
            0 => self.key(true),
            _ => self.script.value(),
        };
        let (remote_addr, rkey) = (self.place(), self.key(true));
        wr.wr = match wr.opcode {
            _ if Session::is_datagram(qp) => ibv_send_wr_wr {
                ud: wr_ud {
                    ah: self.some(|s| &s.ahs),
                    remote_qpn: self.peer(),
                    remote_qkey: self.qkey(),
                },
            },
            5 | 6 => ibv_send_wr_wr {
                atomic: wr_atomic {
                    remote_addr: remote_addr & !7 | u64::from(self.script.one_in(16)),
                    compare_add: u64::from(self.script.value()),
                    swap: 1,
                    rkey,
                },
            },
            _ => ibv_send_wr_wr {
                rdma: wr_rdma { remote_addr, rkey },
            },
        };
        wr.qp_type = self.srq_number();
        // `IBV_WR_BIND_MW`: its union holds this too.
        if wr.opcode == 8 {
            let (mw, mr) = (self.some(|s| &s.mws), self.some(|s| &s.mrs));
            wr.bind_mw = wr_bind_mw {
                mw,
                rkey: rkey ^ (self.script.value() % 3),
                bind_info: self.bind_info(mr),
            };
            if mw.is_null() {
                wr.opcode = 2;
            }
        }
        wr
    }

    fn peer(&mut self) -> u32 {
        let qp = self.some(|s| &s.qps);
        if qp.is_null() {
            return 0;
        }
        // SAFETY: a queue pair that is alive.
        unsafe { (*qp).qp_num }
    }

    fn srq_number(&mut self) -> u32 {
        let srq = self.some(|s| &s.srqs);
        let mut number = 0;
        if !srq.is_null() {
            // SAFETY: a queue that is alive, and a place for a number.
            check_result(unsafe { crate::verbs::xrcd::get_srq_num(srq, &raw mut number) });
        }
        number
    }

    pub(super) fn post_send(&mut self) {
        let qp = self.some(|s| &s.qps);
        if qp.is_null() {
            return;
        }
        let count = 1 + usize::from(self.script.byte()) % LIST;
        let first = self.number_works(count);
        let mut wrs: Vec<ibv_send_wr> = (0..count).map(|_| self.send_request(qp)).collect();
        let inline = |wr: &ibv_send_wr| wr.send_flags & INLINE != 0;
        let mut lists: Vec<_> = wrs.iter().map(|wr| self.entries(inline(wr))).collect();
        let start = wrs.as_mut_ptr();
        for (n, (wr, list)) in wrs.iter_mut().zip(&mut lists).enumerate() {
            wr.wr_id = first + n as u64;
            (wr.sg_list, wr.num_sge) = (list.as_mut_ptr(), self.count_of_entries());
            wr.next = if n + 1 < count {
                start.wrapping_add(n + 1)
            } else {
                ptr::null_mut()
            };
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a queue pair that is alive, and requests that live during the call.
        let result = unsafe {
            let post_send = (*(*qp).context).ops.post_send.expect("it has it");
            post_send(qp, start, &raw mut bad)
        };
        if !check_result(result) {
            let bad = (0..count).find(|n| start.wrapping_add(*n) == bad);
            let bad = bad.expect("the bad one is one of the list");
            self.refuse_works(first + bad as u64);
        }
    }

    fn count_of_entries(&mut self) -> c_int {
        match self.script.byte() {
            0 => -1,
            byte => c_int::from(byte) % (LIST as c_int + 1),
        }
    }

    /// To a queue pair or a shared queue.
    pub(super) fn post_recv(&mut self) {
        let (qp, srq) = (self.some(|s| &s.qps), self.some(|s| &s.srqs));
        let count = 1 + usize::from(self.script.byte()) % LIST;
        let first = self.number_works(count);
        let mut lists: Vec<_> = (0..count).map(|_| self.entries(false)).collect();
        let mut wrs = vec![ibv_recv_wr::zeroed(); count];
        let start = wrs.as_mut_ptr();
        for (n, (wr, list)) in wrs.iter_mut().zip(&mut lists).enumerate() {
            wr.wr_id = first + n as u64;
            (wr.sg_list, wr.num_sge) = (list.as_mut_ptr(), self.count_of_entries());
            wr.next = if n + 1 < count {
                start.wrapping_add(n + 1)
            } else {
                ptr::null_mut()
            };
        }
        let mut bad = ptr::null_mut();
        let is_shared = self.script.byte().is_multiple_of(4);
        // SAFETY: a queue pair or queue that is alive, and requests that live during the call.
        let result = unsafe {
            if is_shared && !srq.is_null() {
                let post = (*(*srq).context).ops.post_srq_recv.expect("it has it");
                post(srq, start, &raw mut bad)
            } else if !qp.is_null() {
                let post = (*(*qp).context).ops.post_recv.expect("it has it");
                post(qp, start, &raw mut bad)
            } else {
                bad = start;
                libc::EINVAL
            }
        };
        if !check_result(result) {
            let bad = (0..count).find(|n| start.wrapping_add(*n) == bad);
            let bad = bad.expect("the bad one is one of the list");
            self.refuse_works(first + bad as u64);
        }
    }

    pub(super) fn poll(&mut self) {
        let cq = self.some(|s| &s.cqs);
        if cq.is_null() {
            return;
        }
        if self.extended.contains(&cq) && self.script.byte().is_multiple_of(2) {
            self.poll_one_by_one(cq.cast());
        } else {
            let most = usize::from(self.script.byte() % 20);
            self.poll_up_to(cq, most);
        }
    }

    /// How many there were.
    pub(super) fn poll_up_to(&mut self, cq: *mut ibv_cq, most: usize) -> usize {
        let mut wcs = vec![ibv_wc::zeroed(); most];
        // SAFETY: a queue that is alive, and room for so many.
        let result = unsafe {
            let poll_cq = (*(*cq).context).ops.poll_cq.expect("it has it");
            poll_cq(cq, most as c_int, wcs.as_mut_ptr())
        };
        assert!((-200..=most as c_int).contains(&result), "{result}");
        let count = usize::try_from(result).unwrap_or(0);
        for wc in &wcs[..count] {
            assert!((0..24).contains(&wc.status), "status {}", wc.status);
            self.complete_work(wc.wr_id);
        }
        count
    }

    /// By the functions of the extended queue.
    fn poll_one_by_one(&mut self, cq: *mut ibv_cq_ex) {
        // SAFETY: a queue that is alive and has all the functions; between start and end no other thread polls it.
        unsafe {
            let start = (*cq).start_poll.expect("it has it");
            let mut result = start(cq, ptr::null_mut());
            if result != 0 {
                return assert!(result > 0, "{result}");
            }
            for _ in 0..self.script.byte() % 8 {
                self.complete_work((*cq).wr_id);
                assert!((0..24).contains(&(*cq).status));
                (*cq).read_opcode.expect("it has it")(cq);
                (*cq).read_byte_len.expect("it has it")(cq);
                (*cq).read_imm_data.expect("it has it")(cq);
                (*cq).read_vendor_err.expect("it has it")(cq);
                (*cq).read_wc_flags.expect("it has it")(cq);
                (*cq).read_completion_ts.expect("it has it")(cq);
                result = (*cq).next_poll.expect("it has it")(cq);
                if result != 0 {
                    break;
                }
            }
            if result == 0 {
                // What was begun is taken.
                self.complete_work((*cq).wr_id);
            }
            (*cq).end_poll.expect("it has it")(cq);
        }
    }

    /// What no region has is as it was.
    pub(super) fn check_margins(&self) {
        let (before, rest) = self.memory.split_at(MARGIN);
        let margins = before.iter().chain(&rest[MEMORY..]);
        let is_untouched = margins.into_iter().all(|byte| *byte == super::UNTOUCHED);
        assert!(is_untouched || self.has_all, "bytes outside of all regions");
    }
}
