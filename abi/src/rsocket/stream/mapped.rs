//! `riomap`, `riounmap`, `riowrite`.

use super::Stream;
use super::transfer::{FIRST, MOST};
use crate::errno::Errno;

impl Stream {
    /// Maps memory; the offset by which it is known, which is its address for an offset of -1.
    ///
    /// # Safety
    /// The memory stays until it is unmapped, or the socket is closed.
    pub(in super::super) unsafe fn map(
        &self,
        memory: (*mut u8, usize),
        for_peer: bool,
        offset: i64,
    ) -> Result<i64, Errno> {
        let mut state = self.lock();
        let offset = match offset {
            -1 => memory.0.addr() as i64,
            offset => offset,
        };
        let connection = state.connection().map_err(|_| Errno::INVAL)?;
        // SAFETY: the caller's promise.
        unsafe { connection.map(memory, for_peer, offset.cast_unsigned()) }?;
        Ok(offset)
    }

    pub(in super::super) fn unmap(&self, addr: usize, len: usize) -> Result<(), Errno> {
        self.lock().connection()?.unmap(addr, len)
    }

    /// Writes to what the peer mapped; how much, which is less than all where its map ends.
    pub(in super::super) fn write_at(
        &self,
        bytes: &[u8],
        offset: i64,
        flags: i32,
    ) -> Result<usize, Errno> {
        let (mut state, wait) = self.connected(flags)?;
        let (mut sent, mut most) = (0, FIRST);
        while sent < bytes.len() {
            state = match self.ready_to_send(state, wait) {
                Ok(state) => state,
                Err(_) if sent > 0 => return Ok(sent),
                Err(errno) => return Err(errno),
            };
            let connection = state.connection()?;
            let at = offset.cast_unsigned() + sent as u64;
            let Some((addr, room, key)) = connection.find_map(at) else {
                return Ok(sent);
            };
            sent += connection.send_direct(&bytes[sent..], most.min(room), addr, key)?;
            most = (most * 2).min(MOST);
        }
        Ok(sent)
    }
}
