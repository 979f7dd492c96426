//! Every packet of real captures parses, has the ICRC that we compute, and is written
//! again byte for byte from the values that were read.

mod support;

use std::path::{Path, PathBuf};

use urxe_wire::{
    Ethernet, Frame, IcrcPolicy, IcrcSeed, IcrcVerdict, Ipv4, Network, ParseError, RoceFrame,
    icrc_of_l3, reident,
};

#[derive(Default, Debug, PartialEq, Eq)]
struct Tally {
    parsed: usize,
    icrc_ok: usize,
    icrc_bad: usize,
    rewritten: usize,
    /// The ICRC verified, and the IPv4 Identification found, from what a UDP socket shows.
    ident_hidden: usize,
    not_roce: usize,
    /// RoCE, and not what the opcode table allows; the ICRC of the IP packet as it is.
    refused_icrc_ok: usize,
    refused_icrc_bad: usize,
}

impl Tally {
    fn add_file(&mut self, path: &Path) {
        let (link_type, frames) = support::frames(path);
        for (index, bytes) in frames.iter().enumerate() {
            let place = format!("{} frame {}", path.display(), index + 1);
            match Frame::parse(link_type, bytes) {
                Ok(Frame::Roce(frame)) => self.add_frame(&frame, bytes, &place),
                Ok(Frame::Pause(_)) | Err(ParseError::NotRoce { .. }) => self.not_roce += 1,
                Err(error) => {
                    println!("{place}: {error}");
                    self.add_refused(bytes);
                }
            }
        }
    }

    fn add_refused(&mut self, bytes: &[u8]) {
        let (_, l3) = Ethernet::parse(bytes).expect("Ethernet");
        let (_, payload) = Ipv4::parse(l3).expect("IPv4");
        let l3 = &l3[..Ipv4::LEN + payload.len()];
        let (_, icrc) = l3.split_last_chunk::<4>().expect("an ICRC");
        match icrc_of_l3(l3) {
            Ok(expected) if expected == u32::from_le_bytes(*icrc) => self.refused_icrc_ok += 1,
            _ => self.refused_icrc_bad += 1,
        }
    }

    fn add_frame(&mut self, frame: &RoceFrame<'_>, bytes: &[u8], place: &str) {
        self.parsed += 1;
        let mut again = vec![0; bytes.len() + 4];
        let len = frame.emit(&mut again);
        // Ethernet's padding of short frames is no part of the packet.
        assert!(
            len == bytes.len() || bytes.len() == 60,
            "{place}: {len} of {}",
            bytes.len()
        );
        assert_eq!(&again[..len], &bytes[..len], "{place}: written differently");
        self.rewritten += 1;
        if !frame.is_icrc_ok() {
            println!("{place}: wrong ICRC");
            self.icrc_bad += 1;
            return;
        }
        self.icrc_ok += 1;
        self.check_as_socket(frame, place);
    }

    /// What a receiver does that does not see the IP header.
    fn check_as_socket(&mut self, frame: &RoceFrame<'_>, place: &str) {
        let Some(path) = frame.path() else { return };
        if frame.ident().is_some_and(|_| !has_df_alone(frame)) {
            return;
        }
        let seed = IcrcSeed::new(&path);
        let ident = frame.ident().unwrap_or(0);
        let bytes = frame.packet.bytes();
        let covered = &bytes[..bytes.len() - 4];
        assert_eq!(seed.compute(ident, covered), frame.icrc_expected, "{place}");
        let found = IcrcVerdict::Ok { ident };
        for hint in [0, 1, ident, 0xabcd] {
            assert_eq!(seed.verify(hint, bytes), found, "{place}: hint {hint:#x}");
        }
        assert_eq!(
            seed.verify_with(IcrcPolicy::Exact, ident, bytes),
            found,
            "{place}"
        );
        self.ident_hidden += 1;

        let mut moved = bytes.to_vec();
        reident(&mut moved, ident, 0x1234);
        let expected = if frame.ident().is_some() { 0x1234 } else { 0 };
        if frame.ident().is_some() {
            assert_eq!(
                seed.verify(expected, &moved),
                IcrcVerdict::Ok { ident: expected }
            );
        }
        let mut broken = bytes.to_vec();
        broken[8] ^= 1;
        assert_eq!(
            seed.verify_with(IcrcPolicy::Exact, ident, &broken),
            IcrcVerdict::Bad
        );
    }
}

fn has_df_alone(frame: &RoceFrame<'_>) -> bool {
    match frame.network {
        Network::V4(ip, _) => ip.flags_and_offset == Ipv4::DF,
        _ => true,
    }
}

#[test]
fn captures_of_rdma_rxe() {
    let mut tally = Tally::default();
    for path in support::own_captures() {
        tally.add_file(&path);
    }
    println!("{tally:?}");
    let expected = Tally {
        parsed: 459,
        icrc_ok: 458,
        // interop_ud holds one packet with a wrong ICRC, on purpose.
        icrc_bad: 1,
        rewritten: 459,
        ident_hidden: 458,
        ..Tally::default()
    };
    assert_eq!(tally, expected);
}

/// Captures of adapters, kept outside the repository because their licences are unclear:
/// in `$URXE_SHARED/vectors`, or beside the workspace in `../shared/vectors`.
#[test]
fn captures_of_adapters() {
    let dir = std::env::var_os("URXE_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let dir = dir.join("vectors");
    if !dir.is_dir() {
        println!("skipped: {} is not there", dir.display());
        return;
    }
    let mut tally = Tally::default();
    for path in support::captures_in(&dir) {
        tally.add_file(&path);
    }
    println!("{tally:?}");
    let expected = Tally {
        parsed: 299,
        icrc_ok: 299,
        icrc_bad: 0,
        rewritten: 299,
        // Not the two of RoCEv1, nor those that some programs send without DF.
        ident_hidden: 290,
        not_roce: 0,
        refused_icrc_ok: 0,
        // hex_vectors.pcap holds an ACK printed in a document: it claims padding that
        // it does not have, and no change of 16 bits repairs its ICRC.
        refused_icrc_bad: 1,
    };
    assert_eq!(tally, expected);
}
