//! Calls of the library in any order, on objects that are alive (to be destroyed, also on others), with any arguments that the manual pages allow a program to
//! pass: what they say no to included. The bytes are a script.
//!
//! Two devices, on networks in memory, so that what one sends the other gets. Every work request has its own number: it
//! completes once at most. In the end everything can be destroyed in the order of the manual pages.

mod create;
mod end;
mod modify;
mod post;
mod post_ex;
mod query;

use core::ffi::{c_int, c_void};
use core::net::IpAddr;
use core::ptr;
use std::sync::{Arc, OnceLock};

use urxe::ListedDevice;
use urxe::network::{Network, enter};

use super::Script;
use crate::device::Device;
use crate::layout::{
    ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_dm, ibv_mr, ibv_mw, ibv_pd, ibv_qp, ibv_srq,
    ibv_td, ibv_xrcd,
};
use crate::verbs::context::ibv_open_device;

/// Objects of one kind at a time.
const OBJECTS: usize = 6;
/// Bytes that programs register and name, and bytes on both sides of them that only requests name.
const MEMORY: usize = 32 << 10;
const MARGIN: usize = 16 << 10;
/// What lies in the margins.
const UNTOUCHED: u8 = 0xa7;

/// Runs a script on two hosts; `deliver` has the network do its work, of a number above 0 also what it likes. Panics if a call does
/// what it must never do.
pub fn run(hosts: [(Arc<dyn Network>, IpAddr); 2], script: &[u8], deliver: &mut dyn FnMut(u8)) {
    let contexts = hosts.map(|(network, addr)| {
        let _entered = enter(network);
        // SAFETY: a device.
        let context = unsafe { ibv_open_device(device(addr).as_ptr()) };
        assert!(!context.is_null(), "the host has the address");
        context
    });
    let mut session = Session::new(contexts, Script(script));
    while !session.script.is_over() {
        session.step(deliver);
    }
    session.end(deliver);
}

/// Devices live as long as the process: there is one for each of the two addresses.
fn device(addr: IpAddr) -> &'static Device {
    static DEVICES: [OnceLock<Device>; 2] = [const { OnceLock::new() }; 2];
    let index = usize::from(addr.to_string().ends_with(".2"));
    DEVICES[index].get_or_init(|| {
        let list = ListedDevice::parse_list(&addr.to_string()).expect("an address is a list");
        Device::new(index as i32, list.into_iter().next().expect("of one"))
    })
}

/// The program.
struct Session<'a> {
    script: Script<'a>,
    contexts: [*mut ibv_context; 2],
    channels: Vec<*mut ibv_comp_channel>,
    pds: Vec<*mut ibv_pd>,
    tds: Vec<*mut ibv_td>,
    cqs: Vec<*mut ibv_cq>,
    /// Those of `cqs` that are polled one by one.
    extended: Vec<*mut ibv_cq>,
    xrcds: Vec<*mut ibv_xrcd>,
    srqs: Vec<*mut ibv_srq>,
    qps: Vec<*mut ibv_qp>,
    ahs: Vec<*mut ibv_ah>,
    mrs: Vec<*mut ibv_mr>,
    mws: Vec<*mut ibv_mw>,
    dms: Vec<*mut ibv_dm>,
    /// Of any kind.
    gone: Vec<*mut c_void>,
    memory: Box<[u8]>,
    /// A region of everything there is: requests may write to the margins.
    has_all: bool,
    works: Vec<Work>,
}

/// The outcome of a work request; its number is its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Posted,
    Refused,
    Completed,
}

impl<'a> Session<'a> {
    fn new(contexts: [*mut ibv_context; 2], script: Script<'a>) -> Session<'a> {
        Session {
            script,
            contexts,
            channels: Vec::new(),
            pds: Vec::new(),
            tds: Vec::new(),
            cqs: Vec::new(),
            extended: Vec::new(),
            xrcds: Vec::new(),
            srqs: Vec::new(),
            qps: Vec::new(),
            ahs: Vec::new(),
            mrs: Vec::new(),
            mws: Vec::new(),
            dms: Vec::new(),
            gone: Vec::new(),
            memory: vec![UNTOUCHED; MEMORY + 2 * MARGIN].into(),
            has_all: false,
            works: Vec::new(),
        }
    }

    fn step(&mut self, deliver: &mut dyn FnMut(u8)) {
        match self.script.byte() % 32 {
            op @ 0..=10 => self.create(op),
            11 => self.destroy(),
            12 => self.query(),
            13..=15 => self.modify(),
            16..=18 => self.connect(),
            19..=22 => self.post_send(),
            23 => self.post_send_ex(),
            24..=26 => self.post_recv(),
            27 => self.bind(),
            28 => self.take_events(),
            29 | 30 => self.poll(),
            _ => deliver(self.script.byte()),
        }
    }

    /// One of the two contexts.
    fn context(&mut self) -> *mut ibv_context {
        self.contexts[usize::from(self.script.byte() % 8 == 7)]
    }

    /// One of the list, or null when there is none.
    fn some<T>(&mut self, list: for<'s> fn(&'s Session<'a>) -> &'s Vec<*mut T>) -> *mut T {
        let place = usize::from(self.script.byte());
        let list = list(self);
        list.get(place % list.len().max(1))
            .copied()
            .unwrap_or(ptr::null_mut())
    }

    /// A place in the memory that is registered, or a little beside it.
    fn place(&mut self) -> u64 {
        // Requests and inline bytes reach some KiB beyond it.
        let offset = self.script.number() % (MEMORY + MARGIN / 2);
        let back = if self.script.one_in(8) { MARGIN / 2 } else { 0 };
        let start = self.memory.as_mut_ptr().wrapping_add(MARGIN - back);
        start.wrapping_add(offset) as u64
    }

    /// Numbers of the next work requests.
    fn number_works(&mut self, count: usize) -> u64 {
        let first = self.works.len();
        self.works.resize(first + count, Work::Posted);
        first as u64
    }

    /// These were not posted.
    fn refuse_works(&mut self, from: u64) {
        self.works[from as usize..].fill(Work::Refused);
    }

    fn complete_work(&mut self, number: u64) {
        let work = self.works.get_mut(number as usize);
        let work = work.expect("a completion is of what was posted");
        assert_eq!(*work, Work::Posted, "work request {number}");
        *work = Work::Completed;
    }
}

/// What a function may return: 0, or the number of an error.
fn check_result(result: c_int) -> bool {
    assert!((0..200).contains(&result), "{result} is no error's number");
    result == 0
}
