//! Errors in words on standard error, with `URXE_VERBOSE` or `URXE_STRICT` in the environment.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::LazyLock;

use urxe::{ErrorKind, PostError, Wc};

use crate::file::Registry;
use crate::object::{Cq, Object, Qp};

/// `URXE_VERBOSE` is on, or strict mode is: its findings are half of the story without the failures.
pub(crate) fn is_on() -> bool {
    static IS_ON: LazyLock<bool> = LazyLock::new(|| {
        ["URXE_VERBOSE", "URXE_STRICT"].into_iter().any(|name| {
            let value = std::env::var(name).unwrap_or_default();
            !["", "0", "off"].contains(&value.trim())
        })
    });
    *IS_ON
}

/// Why a call failed. Programs that post until the queue is full mean it: that is told once.
#[cold]
pub(crate) fn tell_error(error: &urxe::Error) {
    static FULL: AtomicBool = AtomicBool::new(false);
    if !is_on() {
        return;
    }
    let is_full = matches!(error.kind(), ErrorKind::Post(PostError::QueueFull(_)));
    if !is_full || !FULL.swap(true, Ordering::Relaxed) {
        eprintln!("urxe: {error}");
    }
}

/// `EINVAL`, of a work request that C's structures make possible and the engine does not have.
#[cold]
pub(crate) fn invalid_wr(why: &str) -> i32 {
    if is_on() {
        eprintln!("urxe: the work request was refused: {why}");
    }
    libc::EINVAL
}

/// `EINVAL`, of an index into the GID table.
#[cold]
pub(crate) fn tell_gid_index(index: u8, better: Option<usize>) {
    if is_on() {
        let better = better.map_or_else(String::new, |at| format!("; there is one at index {at}"));
        eprintln!("urxe: no IP address for RoCE v2 is at GID index {index}{better}");
    }
}

/// A receiver's timer with more bits than its field has.
#[cold]
pub(crate) fn tell_timer(number: u8, low: u8) {
    if is_on() {
        eprintln!(
            "urxe: min_rnr_timer is {number}, but 0 to 31 is allowed: {low} is taken, as some adapters do, and others refuse it"
        );
    }
}

/// `EINVAL`, of a path without a GRH: what programs for InfiniBand leave out, and the most frequent reason why they do
/// not connect over RoCE.
#[cold]
pub(crate) fn tell_no_grh() {
    if is_on() {
        eprintln!(
            "urxe: the path has no GRH (ah_attr.is_global is 0), without which RoCE has no address: set is_global = 1, \
             grh.dgid to the peer's GID, grh.sgid_index to the index of one's own, and grh.hop_limit"
        );
    }
}

/// What was told of the failed completions of a QP. When it fails, hundreds are flushed: the first is told, with the reason,
/// and the others are counted.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    is_told: AtomicBool,
    more: AtomicU64,
}

/// A program polls a completion that says that its request failed.
#[cold]
pub(crate) fn tell_failure(cq: &Cq, wc: &Wc) {
    if !is_on() {
        return;
    }
    let registry = cq.context().registry();
    let Some(qp) = registry.qps.get(&wc.qp_num.get()) else {
        return;
    };
    // SAFETY: it is registered, and not destroyed while the registry is locked.
    let qp = unsafe { Qp::of(qp.0) };
    if qp.failures.is_told.swap(true, Ordering::Relaxed) {
        qp.failures.more.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let text = qp.urxe.explain(wc).unwrap_or_else(|_| wc.to_string());
    eprintln!("urxe: QP {:#x}: {text}", wc.qp_num.get());
}

/// A QP begins anew, or is gone: how many failed completions were not told; or why it failed, where no completion said so,
/// as at the side that refuses a peer's request.
pub(crate) fn tell_rest(qp: &Qp) {
    if !is_on() {
        return;
    }
    let Failures { is_told, more } = &qp.failures;
    let was_told = is_told.swap(false, Ordering::Relaxed);
    let more = more.swap(0, Ordering::Relaxed);
    let qpn = qp.urxe.qp_num().get();
    if more > 0 {
        eprintln!("urxe: QP {qpn:#x}: {more} more of its requests were flushed or failed");
    }
    // After a fork there is none.
    let why = qp.urxe.last_error().unwrap_or_default();
    if let Some(why) = why.filter(|_| !was_told) {
        eprintln!("urxe: QP {qpn:#x} failed: {why}");
    }
}

/// Tells the rest of all QPs: the program ends without destroying them.
pub(crate) fn tell_rest_of_all(registry: &Registry) {
    for qp in registry.qps.values() {
        // SAFETY: it is registered, and not destroyed while the registry is locked.
        tell_rest(unsafe { Qp::of(qp.0) });
    }
}
