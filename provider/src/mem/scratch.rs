//! Memory behind null regions.

use std::sync::OnceLock;

use memmap2::MmapMut;
use urxe_core::mr::MrTable;

use super::Region;
use crate::error::Error;

/// Where the zeros are that such regions are read from, and behind them the place that they
/// are written to. One for the process: what was written is never read.
pub(crate) fn null_scratch() -> Result<u64, Error> {
    static SCRATCH: OnceLock<Region> = OnceLock::new();
    if let Some(scratch) = SCRATCH.get() {
        return Ok(scratch.expose());
    }
    let map = MmapMut::map_anon(2 * MrTable::NULL_BYTES);
    let map = map.map_err(Error::io("mapping memory for null regions"))?;
    Ok(SCRATCH.get_or_init(|| Region::mapped(map)).expose())
}
