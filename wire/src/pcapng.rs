//! Capture files as Wireshark reads them: the blocks of pcapng (draft-ietf-opsawg-pcapng), for a program that writes
//! one.
//!
//! A file is a [`section`], an [`interface`] for each place where packets are seen, and then a [`Packet`] for each
//! of them. All numbers are little-endian, as the section says; times are nanoseconds: readers that
//! take finer ones wrongly are in wide use (Wireshark up to 4.0 multiplies 64 bits by 10^9).

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USER_APPLICATION: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_SPEED: u16 = 8;
const IF_TIME_RESOLUTION: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// Ethernet frames, without their check sequence.
pub const LINKTYPE_ETHERNET: u16 = 1;
/// IPv4 or IPv6 packets.
pub const LINKTYPE_RAW: u16 = 101;

/// Appends the block that a file begins with: the program that wrote it, and a comment if it is not empty.
pub fn section(out: &mut impl Extend<u8>, application: &str, comment: &str) {
    let options = [
        (OPT_COMMENT, comment.as_bytes()),
        (SHB_USER_APPLICATION, application.as_bytes()),
    ];
    let [major, minor] = VERSION.map(u16::to_le_bytes);
    // The length of the section is not known.
    let unknown = [0xff; 8];
    let body = [&BYTE_ORDER.to_le_bytes()[..], &major, &minor, &unknown];
    block(out, SECTION_HEADER, &body, &options);
}

/// A place where packets are seen. The first that is appended to a file is number 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface<'a> {
    /// The link layer of packets: [`LINKTYPE_ETHERNET`], [`LINKTYPE_RAW`].
    pub link_type: u16,
    /// Its name, or nothing.
    pub name: &'a str,
    /// What else there is to say of it.
    pub description: &'a str,
    /// Bits a second, if that is known.
    pub speed: Option<u64>,
}

/// Appends an interface.
pub fn interface(out: &mut impl Extend<u8>, interface: &Interface<'_>) {
    let speed = interface.speed.map(u64::to_le_bytes);
    let options = [
        (IF_NAME, interface.name.as_bytes()),
        (IF_DESCRIPTION, interface.description.as_bytes()),
        (IF_SPEED, speed.as_ref().map_or(&[], |bits| &bits[..])),
        (IF_TIME_RESOLUTION, &[9]),
    ];
    // Two bytes reserved; packets of any length.
    let body = [&interface.link_type.to_le_bytes()[..], &[0; 6]];
    block(out, INTERFACE_DESCRIPTION, &body, &options);
}

/// The direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Unknown, or neither.
    #[default]
    Unknown,
    /// The packet was received.
    Inbound,
    /// The packet was sent.
    Outbound,
}

/// A packet that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet<'a> {
    /// Number of the interface.
    pub interface: u32,
    /// The time in nanoseconds.
    pub time_ns: u64,
    /// Its bytes, or as many as are known.
    pub bytes: &'a [u8],
    /// Bytes that it really had.
    pub original_len: u32,
    /// Its direction.
    pub direction: Direction,
    /// Its check sequence was wrong.
    pub has_bad_check: bool,
    /// What there is to say about it, or nothing.
    pub comment: &'a str,
}

impl Packet<'_> {
    /// Appends it.
    pub fn write(&self, out: &mut impl Extend<u8>) {
        let direction = match self.direction {
            Direction::Unknown => 0,
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        // Bit 24: the link layer found a wrong CRC.
        let flags: u32 = direction | u32::from(self.has_bad_check) << 24;
        let flags = flags.to_le_bytes();
        let options = [
            (OPT_COMMENT, self.comment.as_bytes()),
            (EPB_FLAGS, if flags == [0; 4] { &[][..] } else { &flags }),
        ];
        let words = [
            self.interface,
            (self.time_ns >> 32) as u32,
            self.time_ns as u32,
            self.bytes.len() as u32,
            self.original_len,
        ];
        let words = words.map(u32::to_le_bytes);
        let body = [words.as_flattened(), self.bytes];
        block(out, ENHANCED_PACKET, &body, &options);
    }
}

/// Appends a block: its type and length, the body, options that are not empty, and the length again. Text
/// beyond 65,535 bytes is cut off, as an option's length has 16 bits.
fn block(out: &mut impl Extend<u8>, kind: u32, body: &[&[u8]], options: &[(u16, &[u8])]) {
    let given = || {
        let given = options.iter().filter(|(_, value)| !value.is_empty());
        given.map(|&(code, value)| (code, &value[..value.len().min(usize::from(u16::MAX))]))
    };
    let body_len: usize = body.iter().map(|part| part.len()).sum();
    let options_len: usize = given().map(|(_, v)| 4 + v.len().next_multiple_of(4)).sum();
    let end_len = if options_len > 0 { 4 } else { 0 };
    let len = (12 + body_len.next_multiple_of(4) + options_len + end_len) as u32;
    let mut put = |bytes: &[u8]| out.extend(bytes.iter().copied());
    put(&kind.to_le_bytes());
    put(&len.to_le_bytes());
    for part in body {
        put(part);
    }
    put(padding(body_len));
    for (code, value) in given() {
        put(&code.to_le_bytes());
        put(&(value.len() as u16).to_le_bytes());
        put(value);
        put(padding(value.len()));
    }
    if end_len > 0 {
        put(&OPT_END.to_le_bytes());
        put(&[0; 2]);
    }
    put(&len.to_le_bytes());
}

/// What makes a length a multiple of four.
fn padding(len: usize) -> &'static [u8] {
    &[0; 3][..len.next_multiple_of(4) - len]
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_file_is_what_the_draft_says() {
        let mut file = Vec::new();
        section(&mut file, "", "");
        assert_eq!(
            file,
            [
                &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0][..],
                &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0],
                &[0xff; 8],
                &[28, 0, 0, 0],
            ]
            .concat()
        );
        file.clear();
        let place = Interface {
            link_type: LINKTYPE_RAW,
            name: "s0>h1",
            description: "",
            speed: None,
        };
        interface(&mut file, &place);
        assert_eq!(
            file,
            [
                &[1, 0, 0, 0, 44, 0, 0, 0][..],
                &[101, 0, 0, 0, 0, 0, 0, 0],
                &[2, 0, 5, 0, b's', b'0', b'>', b'h', b'1', 0, 0, 0],
                &[9, 0, 1, 0, 9, 0, 0, 0],
                &[0, 0, 0, 0, 44, 0, 0, 0],
            ]
            .concat()
        );
        file.clear();
        let packet = Packet {
            interface: 3,
            time_ns: 0x1_0000_0002,
            bytes: b"12345",
            original_len: 100,
            direction: Direction::Outbound,
            has_bad_check: true,
            comment: "why",
        };
        packet.write(&mut file);
        assert_eq!(
            file,
            [
                &[6, 0, 0, 0, 60, 0, 0, 0, 3, 0, 0, 0][..],
                &[1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 100, 0, 0, 0],
                b"12345\0\0\0",
                &[1, 0, 3, 0, b'w', b'h', b'y', 0],
                &[2, 0, 4, 0, 2, 0, 0, 1],
                &[0, 0, 0, 0, 60, 0, 0, 0],
            ]
            .concat()
        );
    }

    #[test]
    fn a_comment_that_is_too_long_is_cut() {
        let mut file = Vec::new();
        let comment = "x".repeat(70_000);
        let packet = Packet {
            comment: &comment,
            ..Packet::default()
        };
        packet.write(&mut file);
        let len = u32::from_le_bytes([file[4], file[5], file[6], file[7]]) as usize;
        assert_eq!((len, len % 4), (file.len(), 0));
        assert_eq!(file[28..32], [1, 0, 0xff, 0xff]);
    }
}
