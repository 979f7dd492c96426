//! Work requests by calls: `ibv_wr_start`, `ibv_wr_send`, `ibv_wr_complete`.

use super::{Session, check_result};
use crate::layout::{ibv_data_buf, ibv_qp_ex, ibv_sge};
use crate::verbs::qp;

impl Session<'_> {
    pub(super) fn post_send_ex(&mut self) {
        let qp = self.some(|s| &s.qps);
        if qp.is_null() {
            return;
        }
        // SAFETY: a queue pair that is alive.
        let extended = unsafe { qp::ibv_qp_to_qp_ex(qp) };
        if extended.is_null() {
            return;
        }
        let count = usize::from(self.script.byte() % 4);
        let first = self.number_works(count);
        // SAFETY: it has these functions, and no other thread builds requests for it.
        let result = unsafe {
            (*extended).wr_start.expect("it has it")(extended);
            for n in 0..count {
                (*extended).wr_id = first + n as u64;
                (*extended).wr_flags = u32::from(self.script.byte() % 32);
                if !self.begin(extended) {
                    // An operation that it was not made for: the program has nothing to call.
                    (*extended).wr_abort.expect("it has it")(extended);
                    return self.refuse_works(first);
                }
                self.address(extended);
                self.data(extended);
            }
            if self.script.one_in(8) {
                (*extended).wr_abort.expect("it has it")(extended);
                libc::ECANCELED
            } else {
                (*extended).wr_complete.expect("it has it")(extended)
            }
        };
        // All of them are posted, or none.
        if !check_result(result) {
            self.refuse_works(first);
        }
    }

    /// Any operation; false if the queue pair does not have it.
    ///
    /// # Safety
    /// A queue pair that is alive, after `wr_start`.
    unsafe fn begin(&mut self, qp: *mut ibv_qp_ex) -> bool {
        let (addr, key) = (self.place(), self.key(true));
        let (value, kind) = (self.script.value(), self.script.byte() % 12);
        let (mw, mr) = (self.some(|s| &s.mws), self.some(|s| &s.mrs));
        let info = self.bind_info(mr);
        let eight = [value; 2];
        // SAFETY: the caller's promise; what is passed is alive.
        unsafe {
            let it = &*qp;
            let done = match kind {
                0 => it.wr_rdma_write.map(|f| f(qp, key, addr)),
                1 => it.wr_rdma_write_imm.map(|f| f(qp, key, addr, value)),
                2 => it.wr_send.map(|f| f(qp)),
                3 => it.wr_send_imm.map(|f| f(qp, value)),
                4 => it.wr_rdma_read.map(|f| f(qp, key, addr)),
                5 => it
                    .wr_atomic_cmp_swp
                    .map(|f| f(qp, key, addr & !7, 1, value.into())),
                6 => it
                    .wr_atomic_fetch_add
                    .map(|f| f(qp, key, addr & !7, value.into())),
                7 => it.wr_local_inv.map(|f| f(qp, key)),
                8 if !mw.is_null() => it
                    .wr_bind_mw
                    .map(|f| f(qp, mw, key ^ (value % 3), &raw const info)),
                9 => it.wr_send_inv.map(|f| f(qp, key)),
                10 => {
                    let [level, kind] = self.script.array();
                    it.wr_flush
                        .map(|f| f(qp, key, addr, value as usize, level % 4, kind % 4))
                }
                _ => it
                    .wr_atomic_write
                    .map(|f| f(qp, key, addr & !7, eight.as_ptr().cast())),
            };
            done.is_some()
        }
    }

    /// # Safety
    /// A queue pair that is alive, after an operation.
    unsafe fn address(&mut self, qp: *mut ibv_qp_ex) {
        let ah = self.some(|s| &s.ahs);
        let peer = self.some(|s| &s.qps);
        let qkey = self.qkey();
        // SAFETY: the caller's promise; the handle and the peer are alive.
        unsafe {
            if Session::is_datagram(qp.cast()) && !ah.is_null() {
                (*qp).wr_set_ud_addr.expect("it has it")(qp, ah, (*peer).qp_num, qkey);
            } else if self.script.one_in(8) {
                (*qp).wr_set_xrc_srqn.expect("it has it")(qp, qkey);
            }
        }
    }

    /// # Safety
    /// As above.
    unsafe fn data(&mut self, qp: *mut ibv_qp_ex) {
        let kind = self.script.byte() % 5;
        let entries: [ibv_sge; 2] = core::array::from_fn(|_| self.entry(kind >= 2));
        let part = |entry: &ibv_sge| ibv_data_buf {
            addr: entry.addr as *mut _,
            length: entry.length as usize,
        };
        let parts = entries.map(|entry| part(&entry));
        let count = usize::from(self.script.byte() % 3);
        // SAFETY: the caller's promise; inline bytes are in memory that is there.
        unsafe {
            match kind {
                0 => {
                    let ibv_sge { addr, length, lkey } = entries[0];
                    (*qp).wr_set_sge.expect("it has it")(qp, lkey, addr, length);
                }
                1 => (*qp).wr_set_sge_list.expect("it has it")(qp, count, entries.as_ptr()),
                2 => {
                    (*qp).wr_set_inline_data.expect("it has it")(qp, parts[0].addr, parts[0].length)
                }
                3 => {
                    (*qp).wr_set_inline_data_list.expect("it has it")(qp, count, parts.as_ptr());
                }
                _ => {}
            }
        }
    }
}
