use super::*;

/// Numbers of a file under construction, in one byte order.
struct Writer {
    big: bool,
    bytes: Vec<u8>,
}

impl Writer {
    fn u16(&mut self, value: u16) {
        let bytes = if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        };
        self.bytes.extend(bytes);
    }

    fn u32(&mut self, value: u32) {
        let bytes = if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        };
        self.bytes.extend(bytes);
    }

    fn block(&mut self, kind: u32, body: &Writer) {
        let len = body.bytes.len().next_multiple_of(4);
        self.u32(kind);
        self.u32(len as u32 + 12);
        self.bytes.extend(&body.bytes);
        self.bytes
            .resize(self.bytes.len() + len - body.bytes.len(), 0);
        self.u32(len as u32 + 12);
    }

    fn nested(&self) -> Writer {
        Writer {
            big: self.big,
            bytes: Vec::new(),
        }
    }
}

fn pcap(big: bool, magic: u32, packets: &[(u32, u32, usize, &[u8])]) -> Vec<u8> {
    let mut file = Writer {
        big,
        bytes: Vec::new(),
    };
    file.u32(magic);
    file.u16(2);
    file.u16(4);
    for word in [0, 0, 65535, 101] {
        file.u32(word);
    }
    for &(seconds, fraction, len_on_wire, data) in packets {
        for word in [seconds, fraction, data.len() as u32, len_on_wire as u32] {
            file.u32(word);
        }
        file.bytes.extend(data);
    }
    file.bytes
}

/// A section with two interfaces (microseconds; 2^-10 s and 100 s ahead) and a packet of each kind.
fn pcapng(big: bool) -> Vec<u8> {
    let mut file = Writer {
        big,
        bytes: Vec::new(),
    };
    let mut section = file.nested();
    section.u32(0x1a2b_3c4d);
    section.u16(1);
    section.u16(0);
    section.u32(u32::MAX);
    section.u32(u32::MAX);
    file.block(SECTION_HEADER, &section);

    let mut ethernet = file.nested();
    ethernet.u16(1);
    ethernet.u16(0);
    ethernet.u32(4);
    file.block(INTERFACE_DESCRIPTION, &ethernet);

    let mut raw = file.nested();
    raw.u16(101);
    raw.u16(0);
    raw.u32(0);
    raw.u16(9);
    raw.u16(1);
    raw.bytes.extend([0x80 | 10, 0, 0, 0]);
    raw.u16(14);
    raw.u16(8);
    // The 64-bit offset in the section's byte order: 100.
    raw.u32(if big { 0 } else { 100 });
    raw.u32(if big { 100 } else { 0 });
    raw.u32(0);
    file.block(INTERFACE_DESCRIPTION, &raw);

    let mut enhanced = file.nested();
    for word in [1, 0, 1024 + 512, 3, 9] {
        enhanced.u32(word);
    }
    enhanced.bytes.extend([1, 2, 3]);
    file.block(ENHANCED_PACKET, &enhanced);

    let mut unknown = file.nested();
    unknown.u32(7);
    file.block(0x0bad_cafe, &unknown);

    let mut obsolete = file.nested();
    obsolete.u16(0);
    obsolete.u16(5);
    for word in [0, 2_000_001, 2, 2] {
        obsolete.u32(word);
    }
    obsolete.bytes.extend([4, 5]);
    file.block(OBSOLETE_PACKET, &obsolete);

    let mut simple = file.nested();
    simple.u32(6);
    simple.bytes.extend([6, 7, 8, 9]);
    file.block(SIMPLE_PACKET, &simple);
    file.bytes
}

fn read_all(bytes: &[u8]) -> Result<Vec<Captured>, CaptureError> {
    let mut reader = CaptureReader::new(bytes)?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame);
    }
    Ok(frames)
}

#[test]
fn pcap_in_both_orders_and_resolutions() {
    for (big, magic, fraction_ns) in [
        (false, 0xa1b2_c3d4, 1_000),
        (true, 0xa1b2_c3d4, 1_000),
        (false, 0xa1b2_3c4d, 1),
        (true, 0xa1b2_3c4d, 1),
    ] {
        let file = pcap(big, magic, &[(7, 9, 3, &[1, 2, 3]), (8, 0, 100, &[4])]);
        let frames = read_all(&file).expect("the file is sound");
        assert_eq!(frames.len(), 2);
        assert_eq!(frames[0].time_ns, Some(7_000_000_000 + 9 * fraction_ns));
        assert_eq!(frames[0].link_type, 101);
        assert_eq!(frames[0].data, [1, 2, 3]);
        assert!(!frames[0].is_truncated());
        assert_eq!(frames[1].len_on_wire, 100);
        assert!(frames[1].is_truncated());
    }
}

#[test]
fn pcapng_blocks_and_time_resolution() {
    for big in [false, true] {
        let frames = read_all(&pcapng(big)).expect("the file is sound");
        assert_eq!(frames.len(), 3, "big endian: {big}");
        let [enhanced, obsolete, simple] = &frames[..] else {
            unreachable!()
        };
        assert_eq!(enhanced.time_ns, Some(101_500_000_000));
        assert_eq!((enhanced.link_type, enhanced.len_on_wire), (101, 9));
        assert_eq!(enhanced.data, [1, 2, 3]);
        assert_eq!(obsolete.time_ns, Some(2_000_001_000));
        assert_eq!(
            (obsolete.link_type, obsolete.data.as_slice()),
            (1, &[4, 5][..])
        );
        assert_eq!(simple.time_ns, None);
        assert_eq!(simple.data, [6, 7, 8, 9], "cut by the snap length of 4");
        assert!(simple.is_truncated());
    }
}

#[test]
fn two_sections_forget_the_interfaces() {
    let mut file = pcapng(false);
    file.extend(pcapng(true));
    assert_eq!(read_all(&file).expect("both sections are sound").len(), 6);
}

#[test]
fn other_files_are_refused() {
    for bytes in [&b""[..], b"abc", b"\x7fELF and more of it", &[0; 64]] {
        assert!(
            matches!(read_all(bytes), Err(CaptureError::NotACapture)),
            "{bytes:?}"
        );
    }
}

#[test]
fn every_cut_is_an_error_or_a_shorter_file() {
    for file in [
        pcap(false, 0xa1b2_c3d4, &[(1, 2, 3, &[1, 2, 3])]),
        pcapng(false),
        pcapng(true),
    ] {
        let whole = read_all(&file).expect("the file is sound");
        for len in 4..file.len() {
            match read_all(&file[..len]) {
                Ok(frames) => assert!(whole.starts_with(&frames), "cut at {len}"),
                Err(CaptureError::Truncated { offset }) => assert!(offset <= len as u64),
                Err(other) => panic!("cut at {len}: {other}"),
            }
        }
    }
}

#[test]
fn no_damaged_byte_panics_or_costs_memory() {
    for file in [
        pcap(true, 0xa1b2_c3d4, &[(1, 2, 3, &[1, 2, 3])]),
        pcapng(false),
        pcapng(true),
    ] {
        for index in 0..file.len() {
            for bit in 0..8 {
                let mut damaged = file.clone();
                damaged[index] ^= 1 << bit;
                if let Ok(frames) = read_all(&damaged) {
                    assert!(frames.len() <= 3);
                }
            }
        }
    }
}

#[test]
fn a_huge_length_is_corrupt() {
    let mut file = pcap(false, 0xa1b2_c3d4, &[(1, 2, 3, &[1, 2, 3])]);
    file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let Err(CaptureError::Corrupt { offset, what }) = read_all(&file) else {
        panic!("the length cannot be")
    };
    assert_eq!((offset, what), (24, "captured length"));
}
