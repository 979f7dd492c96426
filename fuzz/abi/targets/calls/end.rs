//! Destroying objects: what others are made of stays, with `EBUSY`.

use core::ffi::{c_int, c_void};

use super::Session;
use crate::verbs::context::ibv_close_device;
use crate::verbs::{ah, comp_channel, cq, dm, mr, mw, pd, qp_create, srq, xrcd};

/// Objects that are gone, and are destroyed once more.
const GONE: usize = 8;

/// What destroys an object of a kind.
type Destroy<T> = unsafe extern "C" fn(*mut T) -> c_int;

/// Destroys the one at a place of the list, which it is then taken from; nothing if others need it.
fn destroy<T>(list: &mut Vec<*mut T>, place: usize, by: Destroy<T>) -> Option<*mut c_void> {
    if list.is_empty() {
        return None;
    }
    let place = place % list.len();
    // SAFETY: it is alive, and not used again if it says that it is gone.
    match unsafe { by(list[place]) } {
        0 => Some(list.remove(place).cast()),
        libc::EBUSY => None,
        other => panic!("{other} instead of EBUSY"),
    }
}

/// The same of something that is gone or of another kind: nothing happens.
fn refuse<T>(list: &[*mut T], it: *mut c_void, by: Destroy<T>) {
    if !list.contains(&it.cast()) {
        // SAFETY: the function looks whether it is one of its objects.
        let result = unsafe { by(it.cast()) };
        assert!([libc::ENOENT, libc::EINVAL].contains(&result), "{result}");
    }
}

/// Destroys all, in any order that works.
fn destroy_all<T>(list: &mut Vec<*mut T>, by: Destroy<T>) {
    while !list.is_empty() {
        let gone = (0..list.len())
            .rev()
            .any(|place| destroy(list, place, by).is_some());
        assert!(gone, "{} objects need each other", list.len());
    }
}

impl Session<'_> {
    pub(super) fn destroy(&mut self) {
        let [kind, place] = self.script.array();
        if kind >= 192 {
            return self.destroy_again(kind, place);
        }
        let place = usize::from(place);
        let gone = match kind % 12 {
            0 => destroy(
                &mut self.channels,
                place,
                comp_channel::ibv_destroy_comp_channel,
            ),
            1 => destroy(&mut self.pds, place, pd::ibv_dealloc_pd),
            2 => destroy(&mut self.tds, place, pd::dealloc_td),
            3 => {
                let gone = destroy(&mut self.cqs, place, cq::ibv_destroy_cq);
                self.extended.retain(|cq| self.cqs.contains(cq));
                gone
            }
            4 => destroy(&mut self.xrcds, place, xrcd::close_xrcd),
            5 => destroy(&mut self.srqs, place, srq::ibv_destroy_srq),
            6 => destroy(&mut self.ahs, place, ah::ibv_destroy_ah),
            7 => destroy(&mut self.mrs, place, mr::ibv_dereg_mr),
            8 => destroy(&mut self.mws, place, mw::dealloc_mw),
            9 => destroy(&mut self.dms, place, dm::free_dm),
            _ => destroy(&mut self.qps, place, qp_create::ibv_destroy_qp),
        };
        self.gone.extend(gone);
        // The library remembers a number of them.
        let long_ago = self.gone.len().saturating_sub(GONE);
        self.gone.drain(..long_ago);
    }

    /// What is gone, or of another kind.
    fn destroy_again(&mut self, kind: u8, place: u8) {
        let it = match place % 4 {
            0 => self.some(|s| &s.mrs).cast(),
            1 => self.some(|s| &s.qps).cast(),
            _ => self.some(|s| &s.gone),
        };
        if it.is_null() {
            return;
        }
        match kind % 12 {
            0 => refuse(&self.channels, it, comp_channel::ibv_destroy_comp_channel),
            1 => refuse(&self.pds, it, pd::ibv_dealloc_pd),
            2 => refuse(&self.tds, it, pd::dealloc_td),
            3 => refuse(&self.cqs, it, cq::ibv_destroy_cq),
            4 => refuse(&self.xrcds, it, xrcd::close_xrcd),
            5 => refuse(&self.srqs, it, srq::ibv_destroy_srq),
            6 => refuse(&self.ahs, it, ah::ibv_destroy_ah),
            7 => refuse(&self.mrs, it, mr::ibv_dereg_mr),
            8 => refuse(&self.mws, it, mw::dealloc_mw),
            9 => refuse(&self.dms, it, dm::free_dm),
            _ => refuse(&self.qps, it, qp_create::ibv_destroy_qp),
        }
    }

    /// Takes what is there, and destroys everything: the last objects first.
    pub(super) fn end(mut self, deliver: &mut dyn FnMut(u8)) {
        deliver(0);
        for cq in self.cqs.clone() {
            while self.poll_up_to(cq, 16) == 16 {}
        }
        for context in self.contexts {
            self.take_async_events(context);
        }
        destroy_all(&mut self.mws, mw::dealloc_mw);
        destroy_all(&mut self.qps, qp_create::ibv_destroy_qp);
        destroy_all(&mut self.srqs, srq::ibv_destroy_srq);
        destroy_all(&mut self.cqs, cq::ibv_destroy_cq);
        destroy_all(&mut self.channels, comp_channel::ibv_destroy_comp_channel);
        destroy_all(&mut self.ahs, ah::ibv_destroy_ah);
        destroy_all(&mut self.mrs, mr::ibv_dereg_mr);
        destroy_all(&mut self.dms, dm::free_dm);
        destroy_all(&mut self.xrcds, xrcd::close_xrcd);
        destroy_all(&mut self.pds, pd::ibv_dealloc_pd);
        destroy_all(&mut self.tds, pd::dealloc_td);
        destroy_all(&mut self.contexts.to_vec(), ibv_close_device);
        self.check_margins();
    }
}
