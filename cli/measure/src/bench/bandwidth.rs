//! Bandwidth: a window of work requests, posted in lists, one completion a list.

use std::time::{Duration, Instant};

use urxe::{SendWr, Wc};

use super::link::Link;
use crate::error::CliError;
use crate::station::{PeerCheck, RemoteMemory};

/// Does `iters` operations and returns how many of them completed in which time: all, from the first post on; or those behind
/// the first `skip`, while a connection learns what its path is like, from their completion on. A completion
/// means that the other side has the message.
pub fn stream(
    link: &Link,
    remote: RemoteMemory,
    (skip, iters): (u64, u64),
    check: &mut PeerCheck<'_>,
) -> Result<(u64, Duration), CliError> {
    let depth = link.plan.depth() as u64;
    let list_len = link.plan.list_len() as u64;
    let sges = [link.local_sge()];
    let list = signaled_at_end(link, &sges, remote, list_len);
    let mut wcs = [Wc::default(); 16];
    let (mut posted, mut done) = (0, 0);
    let (mut start, mut counted) = (Instant::now(), iters);
    while done < iters {
        while posted < iters && posted - done + list_len <= depth {
            let next = list_len.min(iters - posted);
            if next == list_len {
                link.post(&list)?;
            } else {
                link.post(&signaled_at_end(link, &sges, remote, next))?;
            }
            posted += next;
        }
        // One completion a list: only the last list is shorter.
        let lists = link.sends.wait(&mut wcs, check)? as u64;
        let before = done;
        done = (done + lists * list_len).min(iters);
        if before < skip && done >= skip && done < iters {
            (start, counted) = (Instant::now(), iters - done);
        }
    }
    Ok((counted, start.elapsed()))
}

fn signaled_at_end<'a>(
    link: &Link,
    sges: &'a [urxe::Sge; 1],
    remote: RemoteMemory,
    len: u64,
) -> Vec<SendWr<'a>> {
    let mut list: Vec<SendWr<'a>> = (1..len).map(|_| link.work_request(sges, remote)).collect();
    list.push(link.work_request(sges, remote).signaled());
    list
}
