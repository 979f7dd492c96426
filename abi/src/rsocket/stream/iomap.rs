//! Memory that peers write to by offsets: `riomap`, `riowrite`.

use std::collections::VecDeque;

use urxe::{Access, Mr};

use super::super::wire::{IOMAP_LEN, SGE_LEN, Span, TARGETS, iomap_entry};
use super::connection::Connection;
use crate::errno::Errno;

/// Memory that the program mapped.
struct Mapping {
    mr: Mr,
    addr: usize,
    len: usize,
    offset: u64,
}

/// The mappings of this side.
#[derive(Default)]
pub(super) struct Maps {
    /// For the peer: places in its table.
    shown: Vec<Option<Mapping>>,
    /// Places that the peer was not told of.
    untold: VecDeque<usize>,
    /// For this side alone.
    own: Vec<Mapping>,
}

impl Maps {
    /// The peer's table has so many places.
    pub(super) fn size(&mut self, places: u16) {
        self.shown.resize_with(usize::from(places), || None);
    }

    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }
}

impl Connection {
    /// Maps memory of the program; `for_peer`: it may write there.
    ///
    /// # Safety
    /// The memory stays until it is unmapped, or the socket is closed.
    pub(super) unsafe fn map(
        &mut self,
        memory: (*mut u8, usize),
        for_peer: bool,
        offset: u64,
    ) -> Result<(), Errno> {
        let (addr, len) = memory;
        let remote = if for_peer { Access::REMOTE_WRITE.0 } else { 0 };
        let access = Access(Access::LOCAL_WRITE.0 | remote);
        let place = self.maps.shown.iter().position(Option::is_none);
        if for_peer && place.is_none() {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: the caller's promise.
        let mr = unsafe { self.qp.pd().reg_raw(addr, len, addr.addr() as u64, access) }?;
        let mapping = Mapping {
            mr,
            addr: addr.addr(),
            len,
            offset,
        };
        match place.filter(|_| for_peer) {
            Some(place) => {
                self.maps.shown[place] = Some(mapping);
                self.maps.untold.push_back(place);
            }
            None => self.maps.own.push(mapping),
        }
        Ok(())
    }

    /// `EINVAL` if that memory is not mapped.
    pub(super) fn unmap(&mut self, addr: usize, len: usize) -> Result<(), Errno> {
        let is_it = |mapping: &Mapping| mapping.addr == addr && mapping.len == len;
        let maps = &mut self.maps;
        if let Some(index) = maps.own.iter().position(is_it) {
            maps.own.swap_remove(index);
            return Ok(());
        }
        let shown = maps
            .shown
            .iter()
            .position(|m| m.as_ref().is_some_and(is_it));
        let place = shown.ok_or(Errno::INVAL)?;
        maps.shown[place] = None;
        maps.untold.retain(|untold| *untold != place);
        Ok(())
    }

    /// Tells the peer of the next place that it does not know. [`Connection::can_send`] has to hold.
    pub(super) fn tell_map(&mut self) -> Result<(), Errno> {
        let Some(place) = self.maps.untold.pop_front() else {
            return Ok(());
        };
        let Some(mapping) = &self.maps.shown[place] else {
            return Ok(());
        };
        let span = Span {
            addr: mapping.addr as u64,
            key: mapping.mr.rkey().0,
            length: u32::try_from(mapping.len).unwrap_or(u32::MAX),
        };
        let entry = iomap_entry(mapping.offset, span, self.peer.is_big_endian);
        self.send_entry(place as u32, &entry)
    }

    /// Where the peer mapped an offset, with how many bytes from there on, and their key.
    pub(super) fn find_map(&self, offset: u64) -> Option<(u64, usize, u32)> {
        let first = TARGETS * SGE_LEN;
        let places = (self.target.len() - first) / IOMAP_LEN;
        (0..places).find_map(|index| {
            let at = first + index * IOMAP_LEN;
            let word = |index: usize| self.target.load_u64(at + index * 8);
            // The last word is written last.
            let last = word(2);
            let span = Span::from_words(word(1), last);
            let from = offset.checked_sub(word(0))?;
            let left = u64::from(span.length).checked_sub(from)?;
            let addr = span.addr.checked_add(from)?;
            (left > 0).then_some((addr, left as usize, span.key))
        })
    }
}
