//! The protocol of rsockets: the private data of their connections, and messages of 32 bits.
//!
//! Data goes by RDMA WRITE into a ring that the receiver has shown; the immediate data says how much. Which part of
//! the ring may be written to, the receiver writes into a table of the sender's (the target list), two entries that
//! are used in turn.

/// `rs_conn_data` is so long.
pub(super) const CONN_DATA_LEN: usize = 40;
/// The only version there is.
const VERSION: u8 = 1;
/// The sender is a big-endian machine: entries that are written into its memory have its order.
const FLAG_BIG_ENDIAN: u8 = 1;
/// The sender knows mapped memory (`riomap`).
const FLAG_IOMAP: u8 = 2;
/// An entry of a target list.
pub(super) const SGE_LEN: usize = 16;
/// An entry of a map.
pub(super) const IOMAP_LEN: usize = 24;
/// Entries of our target list.
pub(super) const TARGETS: usize = 2;

/// Memory at the other end, or ours for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    pub(super) addr: u64,
    pub(super) key: u32,
    /// Bytes; of a target list, entries.
    pub(super) length: u32,
}

impl Span {
    /// Key and length as one word of a machine with this byte order.
    fn second(self, big_endian: bool) -> u64 {
        let (key, length) = (u64::from(self.key), u64::from(self.length));
        if big_endian {
            key << 32 | length
        } else {
            length << 32 | key
        }
    }

    /// As it is written into the peer's memory.
    pub(super) fn to_entry(self, big_endian: bool) -> [u8; SGE_LEN] {
        let mut entry = [0; SGE_LEN];
        entry[..8].copy_from_slice(&word(self.addr, big_endian));
        entry[8..].copy_from_slice(&word(self.second(big_endian), big_endian));
        entry
    }

    /// As the peer wrote it: two words in this machine's order. The second one is written last.
    pub(super) fn from_words(addr: u64, second: u64) -> Span {
        let (high, low) = ((second >> 32) as u32, second as u32);
        let (key, length) = if cfg!(target_endian = "big") {
            (high, low)
        } else {
            (low, high)
        };
        Span { addr, key, length }
    }

    pub(super) fn second_word(self) -> u64 {
        self.second(cfg!(target_endian = "big"))
    }
}

fn word(number: u64, big_endian: bool) -> [u8; 8] {
    if big_endian {
        number.to_be_bytes()
    } else {
        number.to_le_bytes()
    }
}

/// An entry of the peer's map: memory that `riowrite` names by an offset.
pub(super) fn iomap_entry(offset: u64, span: Span, big_endian: bool) -> [u8; IOMAP_LEN] {
    let mut entry = [0; IOMAP_LEN];
    entry[..8].copy_from_slice(&word(offset, big_endian));
    entry[8..].copy_from_slice(&span.to_entry(big_endian));
    entry
}

/// What each side shows the other when they connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ConnData {
    pub(super) is_big_endian: bool,
    pub(super) has_iomap: bool,
    /// Receives that are posted.
    pub(super) credits: u16,
    /// Entries of the map.
    pub(super) iomap_size: u16,
    /// Where the peer writes which parts of its ring are free.
    pub(super) target_list: Span,
    /// The first part of the ring.
    pub(super) buffer: Span,
}

impl ConnData {
    pub(super) fn to_bytes(self) -> [u8; CONN_DATA_LEN] {
        let mut bytes = [0; CONN_DATA_LEN];
        bytes[0] = VERSION;
        bytes[1] = (u8::from(self.is_big_endian) * FLAG_BIG_ENDIAN)
            | (u8::from(self.has_iomap) * FLAG_IOMAP);
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = to_scale(self.iomap_size);
        bytes[8..24].copy_from_slice(&self.target_list.to_entry(true));
        bytes[24..].copy_from_slice(&self.buffer.to_entry(true));
        bytes
    }

    /// None if it is no rsocket that asks, or one of a version that is not known.
    pub(super) fn parse(bytes: &[u8]) -> Option<ConnData> {
        let bytes: &[u8; CONN_DATA_LEN] = bytes.first_chunk()?;
        if bytes[0] != VERSION {
            return None;
        }
        let has_iomap = bytes[1] & FLAG_IOMAP != 0;
        let data = ConnData {
            is_big_endian: bytes[1] & FLAG_BIG_ENDIAN != 0,
            has_iomap,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            iomap_size: if has_iomap { from_scale(bytes[7]) } else { 0 },
            target_list: span_at(bytes, 8),
            buffer: span_at(bytes, 24),
        };
        // Entries are used in turn, so there has to be one.
        (data.target_list.length > 0).then_some(data)
    }
}

fn span_at(bytes: &[u8; CONN_DATA_LEN], at: usize) -> Span {
    let words = bytes[at..at + SGE_LEN].as_chunks().0;
    let (addr, second) = (u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1]));
    let (key, length) = ((second >> 32) as u32, second as u32);
    Span { addr, key, length }
}

/// Up to 128 as it is; more, in steps of 256 (the value's high byte, with the top bit set).
pub(super) fn to_scale(value: u16) -> u8 {
    if value <= 1 << 7 {
        return value as u8;
    }
    (1 << 7) | (value >> 8) as u8
}

pub(super) fn from_scale(value: u8) -> u16 {
    if value <= 1 << 7 {
        return u16::from(value);
    }
    u16::from(value & 0x7f) << 8
}

/// A message: three bits what, 29 how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// The number of bytes of data that were written.
    Data(u32),
    /// The peer may have sent so many messages in all (16 bits count); and an entry of the target list may be new.
    Credit(u16),
    /// An entry of the map is new.
    Iomap(u32),
    /// Nothing more will come or be read.
    Disconnect,
    /// Asks whether the peer is alive.
    KeepAlive,
    /// Nothing more will come.
    Shutdown,
}

const DATA: u32 = 0;
const CREDIT: u32 = 4;
const IOMAP: u32 = 6;
const CONTROL: u32 = 7;
const VALUE_MASK: u32 = (1 << 29) - 1;

impl Message {
    pub(super) fn to_imm(self) -> u32 {
        let (kind, value) = match self {
            Message::Data(len) => (DATA, len),
            Message::Credit(limit) => (CREDIT, u32::from(limit)),
            Message::Iomap(index) => (IOMAP, index),
            Message::Disconnect => (CONTROL, 0),
            Message::KeepAlive => (CONTROL, 1),
            Message::Shutdown => (CONTROL, 2),
        };
        (kind << 29) | (value & VALUE_MASK)
    }

    /// None of what is reserved: it is ignored.
    pub(super) fn from_imm(imm: u32) -> Option<Message> {
        let value = imm & VALUE_MASK;
        match (imm >> 29, value) {
            (DATA, len) => Some(Message::Data(len)),
            (CREDIT, limit) => Some(Message::Credit(limit as u16)),
            (IOMAP, index) => Some(Message::Iomap(index)),
            (CONTROL, 0) => Some(Message::Disconnect),
            (CONTROL, 1) => Some(Message::KeepAlive),
            (CONTROL, 2) => Some(Message::Shutdown),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(seed: u64) -> Span {
        Span {
            addr: (seed << 40) | 0x1122,
            key: seed as u32 * 3,
            length: seed as u32 + 1,
        }
    }

    #[test]
    fn connection_data_has_its_fields_where_others_expect_them() {
        let data = ConnData {
            is_big_endian: false,
            has_iomap: true,
            credits: 384,
            iomap_size: 128,
            target_list: span(2),
            buffer: span(9),
        };
        let bytes = data.to_bytes();
        assert_eq!(&bytes[..8], &[1, 2, 1, 128, 0, 0, 0, 128]);
        assert_eq!(&bytes[20..24], &[0, 0, 0, 3]);
        assert_eq!(ConnData::parse(&bytes), Some(data));
    }

    #[test]
    fn connection_data_of_strangers_is_refused() {
        let mut bytes = [0; CONN_DATA_LEN];
        assert_eq!(ConnData::parse(&bytes), None, "version 0");
        bytes[0] = VERSION;
        assert_eq!(ConnData::parse(&bytes), None, "no target list");
        assert_eq!(ConnData::parse(&bytes[..39]), None, "short");
    }

    #[test]
    fn messages_survive() {
        for message in [
            Message::Data(0x1fff_ffff),
            Message::Credit(0xffff),
            Message::Iomap(7),
            Message::Disconnect,
            Message::KeepAlive,
            Message::Shutdown,
        ] {
            assert_eq!(Message::from_imm(message.to_imm()), Some(message));
        }
        assert_eq!(Message::Credit(1).to_imm(), 0x8000_0001);
        assert_eq!(Message::from_imm(1 << 29), None);
    }

    #[test]
    fn entries_are_in_the_order_of_who_reads_them() {
        let entry = span(5).to_entry(cfg!(target_endian = "big"));
        let word = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().expect("eight"));
        assert_eq!(Span::from_words(word(0), word(8)), span(5));
        assert_eq!(span(5).second_word(), word(8));
        assert_eq!(span(5).to_entry(true)[..8], span(5).addr.to_be_bytes());
    }

    #[test]
    fn scales_keep_small_numbers() {
        assert_eq!(from_scale(to_scale(100)), 100);
        assert_eq!(from_scale(to_scale(0x1234)), 0x1200);
    }
}
