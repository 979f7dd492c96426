//! Asking, and events.

use core::ffi::c_int;
use core::ptr;

use super::{Session, check_result};
use crate::layout::{
    CStruct, ibv_async_event, ibv_context, ibv_device_attr_ex, ibv_gid, ibv_port_attr, ibv_qp_attr,
    ibv_qp_init_attr, ibv_sge, ibv_srq_attr,
};
use crate::verbs::{comp_channel, events, gid, mr, qp, query, srq};

impl Session<'_> {
    pub(super) fn query(&mut self) {
        let context = self.context();
        match self.script.byte() % 8 {
            0 => {
                let mut attr = ibv_port_attr::zeroed();
                let (port, size) = (self.script.byte() % 3, self.script.number() % 57);
                // SAFETY: a context, and room for so much.
                check_result(unsafe { query::query_port(context, port, &raw mut attr, size) });
            }
            1 => {
                let mut attr = ibv_device_attr_ex::zeroed();
                let size = self.script.number() % 401;
                // SAFETY: as above.
                check_result(unsafe {
                    query::query_device_ex(context, ptr::null(), &raw mut attr, size)
                });
            }
            2 => {
                let mut entry = ibv_gid { raw: [0; 2] };
                let (port, index) = (self.script.byte() % 3, self.script.value() as c_int);
                // SAFETY: a context and a place.
                let result = unsafe { gid::ibv_query_gid(context, port, index, &raw mut entry) };
                assert!(result == 0 || result == -1);
            }
            3 => {
                let (cq, solicited) = (self.some(|s| &s.cqs), c_int::from(self.script.byte() % 2));
                if !cq.is_null() {
                    // SAFETY: a queue that is alive.
                    check_result(unsafe {
                        (*(*cq).context).ops.req_notify_cq.expect("it has it")(cq, solicited)
                    });
                }
            }
            4 => self.advise(),
            5 => self.copy_device_memory(),
            6 => {
                let (srq, mut attr) = (self.some(|s| &s.srqs), ibv_srq_attr::zeroed());
                if !srq.is_null() {
                    // SAFETY: a queue that is alive and a place.
                    assert_eq!(unsafe { srq::ibv_query_srq(srq, &raw mut attr) }, 0);
                    assert!(attr.srq_limit <= attr.max_wr);
                }
            }
            _ => self.query_qp(),
        }
    }

    fn query_qp(&mut self) {
        let qp = self.some(|s| &s.qps);
        if qp.is_null() {
            return;
        }
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        // SAFETY: a queue pair that is alive, and places.
        unsafe {
            let result = qp::ibv_query_qp(qp, &raw mut attr, 0, &raw mut init);
            if check_result(result) {
                assert_eq!((attr.qp_state, init.qp_type), ((*qp).state, (*qp).qp_type));
                assert!((0..7).contains(&attr.qp_state));
            }
        }
    }

    fn advise(&mut self) {
        let pd = self.some(|s| &s.pds);
        let mut list: [ibv_sge; 2] = core::array::from_fn(|_| self.entry(false));
        let (advice, flags) = (c_int::from(self.script.byte() % 4), self.script.value() % 3);
        let count = u32::from(self.script.byte() % 3);
        if !pd.is_null() {
            // SAFETY: a domain that is alive, and so many entries.
            check_result(unsafe { mr::advise_mr(pd, advice, flags, list.as_mut_ptr(), count) });
        }
    }

    fn copy_device_memory(&mut self) {
        let dm = self.some(|s| &s.dms);
        let (offset, length) = (u64::from(self.script.value()), self.script.number() % 8192);
        let (place, is_out) = (self.place(), self.script.byte().is_multiple_of(2));
        if dm.is_null() {
            return;
        }
        let mut copy = vec![0_u8; length];
        // SAFETY: device memory that is alive, and bytes that are there.
        let result = unsafe {
            if is_out {
                (*dm).memcpy_from_dm.expect("it has it")(
                    copy.as_mut_ptr().cast(),
                    dm,
                    offset,
                    length,
                )
            } else {
                (*dm).memcpy_to_dm.expect("it has it")(dm, offset, place as *const _, length)
            }
        };
        check_result(result);
    }

    /// Those that are there, of one channel or context; each is acknowledged.
    pub(super) fn take_events(&mut self) {
        let (channel, context) = (self.some(|s| &s.channels), self.context());
        if self.script.byte().is_multiple_of(2) {
            return self.take_async_events(context);
        }
        if channel.is_null() {
            return;
        }
        let (mut cq, mut of) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a channel that is alive, and places.
        unsafe {
            never_wait((*channel).fd);
            while comp_channel::ibv_get_cq_event(channel, &raw mut cq, &raw mut of) == 0 {
                assert!(self.cqs.contains(&cq), "an event of a queue that is gone");
                comp_channel::ibv_ack_cq_events(cq, 1);
            }
        }
    }

    pub(super) fn take_async_events(&mut self, context: *mut ibv_context) {
        let mut event = ibv_async_event {
            element: ptr::null_mut(),
            event_type: 0,
        };
        // SAFETY: a context that is alive, and a place.
        unsafe {
            never_wait((*context).async_fd);
            while events::ibv_get_async_event(context, &raw mut event) == 0 {
                let it = event.element;
                let is_known = self.qps.contains(&it.cast())
                    || self.cqs.contains(&it.cast())
                    || self.srqs.contains(&it.cast())
                    || it.addr() <= 1;
                assert!(is_known, "an event of an object that is gone");
                events::ibv_ack_async_event(&raw mut event);
            }
        }
    }
}

fn never_wait(fd: c_int) {
    // SAFETY: takes numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
}
