//! Capture files: pcap and pcapng, either byte order, read from untrusted bytes.
//!
//! A reader of our own because the time stamp resolution of pcapng (`if_tsresol`) and the place of a fault in
//! the file matter here, and because a corrupt file must give an error that names that place.

use std::io::{self, Read};

/// Larger blocks are a sign of a corrupt length field, not of a packet: tcpdump's largest snap length is 256 KiB.
const BLOCK_LEN_MAX: usize = 16 << 20;

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Nanoseconds since 1970; `None` where the format carries no time (pcapng simple packet).
    pub(crate) time_ns: Option<u128>,
    /// LINKTYPE_ value of the interface it was seen on.
    pub(crate) link_type: u16,
    /// Length on the wire; larger than `data` when the capture cut it off.
    pub(crate) len_on_wire: usize,
    pub(crate) data: Vec<u8>,
}

impl Captured {
    /// Whether the capture's snap length cut bytes off.
    pub(crate) fn is_truncated(&self) -> bool {
        self.data.len() < self.len_on_wire
    }
}

/// Why a file cannot be read on, and where.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    /// The file is neither pcap nor pcapng.
    #[error("not a pcap or pcapng file")]
    NotACapture,
    #[error("the file ends within the record that begins at byte {offset}")]
    Truncated { offset: u64 },
    /// A field has a value that cannot be.
    #[error("corrupt at byte {offset}: {what}")]
    Corrupt { offset: u64, what: &'static str },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads frames one after the other.
#[derive(Debug)]
pub(crate) struct CaptureReader<R> {
    source: Source<R>,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Pcap { nanos: bool, link_type: u16 },
    PcapNg { interfaces: Vec<Interface> },
}

impl<R: Read> CaptureReader<R> {
    pub(crate) fn new(reader: R) -> Result<CaptureReader<R>, CaptureError> {
        let mut source = Source {
            reader,
            offset: 0,
            record: 0,
            order: Order::Little,
        };
        let magic = match source.array::<4>() {
            Err(CaptureError::Truncated { .. }) => return Err(CaptureError::NotACapture),
            other => other?,
        };
        let format = match u32::from_le_bytes(magic) {
            0xa1b2_c3d4 => pcap_header(&mut source, Order::Little, false)?,
            0xa1b2_3c4d => pcap_header(&mut source, Order::Little, true)?,
            0xd4c3_b2a1 => pcap_header(&mut source, Order::Big, false)?,
            0x4d3c_b2a1 => pcap_header(&mut source, Order::Big, true)?,
            SECTION_HEADER => {
                section_header(&mut source)?;
                let interfaces = Vec::new();
                Format::PcapNg { interfaces }
            }
            _ => return Err(CaptureError::NotACapture),
        };
        Ok(CaptureReader { source, format })
    }

    /// The next frame; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Captured>, CaptureError> {
        let source = &mut self.source;
        match &mut self.format {
            &mut Format::Pcap { nanos, link_type } => next_pcap(source, nanos, link_type),
            Format::PcapNg { interfaces } => next_pcapng(source, interfaces),
        }
    }
}

/// The rest of a pcap file header, after the magic.
fn pcap_header<R: Read>(
    source: &mut Source<R>,
    order: Order,
    nanos: bool,
) -> Result<Format, CaptureError> {
    source.order = order;
    let rest = source.array::<20>()?;
    // The upper bits of the last word hold the FCS length, not part of the link type.
    let link_type = (order.u32(&rest[16..20]) & 0xffff) as u16;
    Ok(Format::Pcap { nanos, link_type })
}

fn next_pcap<R: Read>(
    source: &mut Source<R>,
    nanos: bool,
    link_type: u16,
) -> Result<Option<Captured>, CaptureError> {
    let mut header = [0; 16];
    if !source.fill_or_end(&mut header)? {
        return Ok(None);
    }
    let order = source.order;
    let word = |index: usize| order.u32(&header[index * 4..index * 4 + 4]);
    let fraction = u128::from(word(1)) * if nanos { 1 } else { 1_000 };
    let time_ns = u128::from(word(0)) * 1_000_000_000 + fraction;
    let data = source.take(word(2) as usize, "captured length")?;
    // A length on the wire below the captured one is a writer's slip; the bytes are there.
    let len_on_wire = (word(3) as usize).max(data.len());
    Ok(Some(Captured {
        time_ns: Some(time_ns),
        link_type,
        len_on_wire,
        data,
    }))
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// What an interface description block says about the frames of that interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_len: usize,
    /// Time stamp units a second.
    units_per_second: u128,
    /// Seconds to add to each time stamp.
    offset_seconds: i64,
}

/// A section header block after its type: finds the byte order and skips the rest.
fn section_header<R: Read>(source: &mut Source<R>) -> Result<(), CaptureError> {
    let head = source.array::<8>()?;
    source.order = match u32::from_le_bytes([head[4], head[5], head[6], head[7]]) {
        0x1a2b_3c4d => Order::Little,
        0x4d3c_2b1a => Order::Big,
        _ => return Err(source.corrupt("section header without byte-order magic")),
    };
    let len = source.order.u32(&head[..4]) as usize;
    if len < 28 || !len.is_multiple_of(4) {
        return Err(source.corrupt("section header length"));
    }
    let body = source.take(len - 12, "section header length")?;
    check_trailer(source, &body, len)
}

/// A block ends with its length once more.
fn check_trailer<R>(source: &Source<R>, body: &[u8], len: usize) -> Result<(), CaptureError> {
    match body.last_chunk::<4>() {
        Some(trailer) if source.order.u32(trailer) as usize == len => Ok(()),
        _ => Err(source.corrupt("block lengths at its two ends differ")),
    }
}

fn next_pcapng<R: Read>(
    source: &mut Source<R>,
    interfaces: &mut Vec<Interface>,
) -> Result<Option<Captured>, CaptureError> {
    loop {
        let mut kind = [0; 4];
        if !source.fill_or_end(&mut kind)? {
            return Ok(None);
        }
        if u32::from_le_bytes(kind) == SECTION_HEADER {
            // A new section: its own byte order, its own interfaces.
            section_header(source)?;
            interfaces.clear();
            continue;
        }
        let len = source.array::<4>()?;
        let (kind, len) = (source.order.u32(&kind), source.order.u32(&len) as usize);
        if len < 12 || !len.is_multiple_of(4) {
            return Err(source.corrupt("block length"));
        }
        let block = source.take(len - 8, "block length")?;
        check_trailer(source, &block, len)?;
        let body = &block[..block.len() - 4];
        let frame = match kind {
            INTERFACE_DESCRIPTION => {
                interfaces.push(interface(source, body)?);
                continue;
            }
            ENHANCED_PACKET | OBSOLETE_PACKET => {
                packet(source, interfaces, kind == OBSOLETE_PACKET, body)?
            }
            SIMPLE_PACKET => simple_packet(source, interfaces, body)?,
            // Names, statistics, secrets, whatever comes later: not frames.
            _ => continue,
        };
        return Ok(Some(frame));
    }
}

fn interface<R>(source: &Source<R>, body: &[u8]) -> Result<Interface, CaptureError> {
    let order = source.order;
    let Some((fixed, mut options)) = body.split_first_chunk::<8>() else {
        return Err(source.corrupt("interface description too short"));
    };
    let mut interface = Interface {
        link_type: order.u16(&fixed[..2]),
        snap_len: match order.u32(&fixed[4..]) as usize {
            0 => usize::MAX,
            limit => limit,
        },
        units_per_second: 1_000_000,
        offset_seconds: 0,
    };
    while let Some((head, rest)) = options.split_first_chunk::<4>() {
        let (code, len) = (order.u16(&head[..2]), usize::from(order.u16(&head[2..])));
        if code == 0 {
            break;
        }
        let Some(value) = rest.get(..len) else {
            return Err(source.corrupt("interface option longer than its block"));
        };
        match (code, value) {
            (9, &[resolution]) => interface.units_per_second = units_per_second(resolution),
            (14, value) if value.len() == 8 => {
                interface.offset_seconds = order.number(value).cast_signed();
            }
            _ => {}
        }
        options = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(interface)
}

/// `if_tsresol`: a negative power of ten, or of two when the top bit is set.
fn units_per_second(resolution: u8) -> u128 {
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    // Finer than 10^-38 or 2^-127 is no clock: treat it as the finest that can be computed with.
    base.checked_pow(exponent).unwrap_or(u128::MAX)
}

impl Interface {
    fn time_ns(&self, high: u32, low: u32) -> u128 {
        let units = u128::from(high) << 32 | u128::from(low);
        let seconds = units / self.units_per_second;
        let rest = units % self.units_per_second;
        // At most 2^64 units, so the product stays below 2^94.
        let nanos = rest * 1_000_000_000 / self.units_per_second;
        let seconds = seconds.saturating_add_signed(i128::from(self.offset_seconds));
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    }
}

fn interface_of<R>(
    source: &Source<R>,
    interfaces: &[Interface],
    index: usize,
) -> Result<Interface, CaptureError> {
    let found = interfaces.get(index).copied();
    found.ok_or_else(|| source.corrupt("packet of an interface that was not described"))
}

/// An enhanced packet block, or the packet block that it replaced, which differs in one thing: its interface
/// is a 16-bit number beside a drop count.
fn packet<R>(
    source: &Source<R>,
    interfaces: &[Interface],
    is_obsolete: bool,
    body: &[u8],
) -> Result<Captured, CaptureError> {
    let order = source.order;
    let Some((fixed, rest)) = body.split_first_chunk::<20>() else {
        return Err(source.corrupt("packet block too short"));
    };
    let word = |index: usize| order.u32(&fixed[index * 4..index * 4 + 4]);
    let index = if is_obsolete {
        u32::from(order.u16(&fixed[..2]))
    } else {
        word(0)
    };
    let interface = interface_of(source, interfaces, index as usize)?;
    let Some(data) = rest.get(..word(3) as usize) else {
        return Err(source.corrupt("captured length exceeds its block"));
    };
    Ok(Captured {
        time_ns: Some(interface.time_ns(word(1), word(2))),
        link_type: interface.link_type,
        len_on_wire: (word(4) as usize).max(data.len()),
        data: data.to_vec(),
    })
}

/// No time, and no captured length: it follows from the snap length and the block's size.
fn simple_packet<R>(
    source: &Source<R>,
    interfaces: &[Interface],
    body: &[u8],
) -> Result<Captured, CaptureError> {
    let Some((fixed, rest)) = body.split_first_chunk::<4>() else {
        return Err(source.corrupt("packet block too short"));
    };
    let interface = interface_of(source, interfaces, 0)?;
    let len_on_wire = source.order.u32(fixed) as usize;
    let Some(data) = rest.get(..len_on_wire.min(interface.snap_len)) else {
        return Err(source.corrupt("packet length exceeds its block"));
    };
    Ok(Captured {
        time_ns: None,
        link_type: interface.link_type,
        len_on_wire,
        data: data.to_vec(),
    })
}

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: &[u8]) -> u16 {
        self.number(bytes) as u16
    }

    fn u32(self, bytes: &[u8]) -> u32 {
        self.number(bytes) as u32
    }

    /// Of at most eight bytes.
    fn number(self, bytes: &[u8]) -> u64 {
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        match self {
            Order::Little => bytes.iter().rev().fold(0, add),
            Order::Big => bytes.iter().fold(0, add),
        }
    }
}

/// The reader, and where it stands.
#[derive(Debug)]
struct Source<R> {
    reader: R,
    offset: u64,
    /// Where the record being read begins: what an error names.
    record: u64,
    /// The order of the file, or of its present section.
    order: Order,
}

impl<R> Source<R> {
    fn corrupt(&self, what: &'static str) -> CaptureError {
        let offset = self.record;
        CaptureError::Corrupt { offset, what }
    }

    /// An error if less was read than is wanted.
    fn check(&self, read: usize, wanted: usize) -> Result<(), CaptureError> {
        let offset = self.record;
        if read < wanted {
            Err(CaptureError::Truncated { offset })
        } else {
            Ok(())
        }
    }
}

impl<R: Read> Source<R> {
    /// The next bytes; the end of the file is an error.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], CaptureError> {
        let mut bytes = [0; N];
        let read = self.read_up_to(&mut bytes)?;
        self.check(read, N).map(|()| bytes)
    }

    /// Begins a record: false when the file ends here, as it may.
    fn fill_or_end(&mut self, buffer: &mut [u8]) -> Result<bool, CaptureError> {
        self.record = self.offset;
        let read = self.read_up_to(buffer)?;
        if read > 0 {
            self.check(read, buffer.len())?;
        }
        Ok(read > 0)
    }

    /// The next `len` bytes. Grows as they come, so that a corrupt length costs no memory.
    fn take(&mut self, len: usize, what: &'static str) -> Result<Vec<u8>, CaptureError> {
        if len > BLOCK_LEN_MAX {
            return Err(self.corrupt(what));
        }
        let mut bytes = Vec::new();
        let reader = self.reader.by_ref();
        let read = reader.take(len as u64).read_to_end(&mut bytes)?;
        self.offset += read as u64;
        self.check(read, len).map(|()| bytes)
    }

    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, CaptureError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }
}

#[cfg(test)]
#[path = "capture_tests.rs"]
mod tests;
