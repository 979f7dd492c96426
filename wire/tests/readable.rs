//! The one line that a frame is shown as.

mod support;

use urxe_wire::cm::CmMessage;
use urxe_wire::{Frame, Mac, PAUSE_DESTINATION, ParseError, Pause, PauseFrame};

fn lines(name: &str) -> Vec<String> {
    let path = support::own_captures()
        .into_iter()
        .find(|path| path.ends_with(name));
    let (link_type, frames) = support::frames(&path.expect("the capture is there"));
    let roce = frames
        .iter()
        .filter_map(|bytes| match Frame::parse(link_type, bytes) {
            Err(ParseError::NotRoce { .. }) => None,
            other => Some(other.expect("RoCE").to_string()),
        });
    roce.collect()
}

#[test]
fn capture_of_atomics() {
    let lines = lines("rc_atomic.pcap");
    let shown = lines.join("\n");
    for part in [
        "RC FetchAdd",
        " add 0x10",
        "RC ATOMIC Acknowledge",
        " original 0x",
        " compare ",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
    assert!(lines[0].starts_with("10.77.0.3."), "{}", lines[0]);
    assert!(
        lines[0].contains(" > 10.77.0.2.4791: RC FetchAdd QPN 0x"),
        "{}",
        lines[0]
    );
}

#[test]
fn capture_of_a_connection() {
    let shown = lines("cm_rping.pcap").join("\n");
    for part in [
        ", REQ id 0x",
        ", REP id 0x",
        ", RTU id 0x",
        ", DREQ id 0x",
        ", DREP id 0x",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
    assert!(
        shown.contains(" to 10.77.0.2"),
        "addresses of the IP header\n{shown}"
    );
    let shown = lines("cm_reject.pcap").join("\n");
    assert!(
        shown.contains(" of REQ: refused by the application")
            || shown.contains(" of REQ: invalid service id"),
        "{shown}"
    );
    let shown = lines("cm_udaddy.pcap").join("\n");
    assert!(
        shown.contains("SIDR_REP") && shown.contains("valid QP"),
        "{shown}"
    );
}

#[test]
fn a_wrong_icrc_shows() {
    let lines = lines("interop_ud.pcap");
    assert!(lines[0].ends_with(", bad ICRC"), "{}", lines[0]);
    assert!(
        lines[1..].iter().all(|line| !line.contains("bad")),
        "{lines:?}"
    );
}

#[test]
fn naks_say_why() {
    assert!(
        lines("rc_nak_rkey_write.pcap")
            .join("\n")
            .contains("NAK remote access error")
    );
    assert!(
        lines("rc_rnr_nak.pcap")
            .join("\n")
            .contains("RNR NAK 2.56ms")
    );
}

#[test]
fn pause_frames() {
    let mut quanta = [0; 8];
    quanta[3] = 0xffff;
    let frame = PauseFrame {
        dst: PAUSE_DESTINATION,
        src: Mac([2, 0, 0, 0, 0, 1]),
        pause: Pause::Priorities {
            enabled: 0x18,
            quanta,
        },
    };
    assert_eq!(
        frame.to_string(),
        "PFC priority 3 pause 65535 quanta, priority 4 resume"
    );
    assert_eq!(PauseFrame::parse(&frame.emit()), Ok(frame));
    // Octets of the standard's format: destination, opcode 0x0101, class enable vector.
    let bytes = frame.emit();
    assert_eq!(bytes[..6], [0x01, 0x80, 0xc2, 0, 0, 1]);
    assert_eq!(bytes[12..18], [0x88, 0x08, 0x01, 0x01, 0x00, 0x18]);
    assert_eq!(bytes[24..26], [0xff, 0xff]);
    let all = PauseFrame {
        pause: Pause::All(7),
        ..frame
    };
    assert_eq!(PauseFrame::parse(&all.emit()), Ok(all));
    for len in 0..34 {
        assert!(PauseFrame::parse(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn every_captured_connection_message_is_written_as_it_was_read() {
    let mut names = std::collections::BTreeMap::new();
    for path in support::own_captures() {
        let (link_type, frames) = support::frames(&path);
        for bytes in &frames {
            let Ok(Frame::Roce(frame)) = Frame::parse(link_type, bytes) else {
                continue;
            };
            if frame.packet.bth().dest_qp != urxe_wire::Qpn::GSI {
                continue;
            }
            let mad = frame.packet.payload();
            let (header, message) = CmMessage::parse(mad).expect("a CM message");
            assert_eq!(message.emit(&header)[..], *mad, "{message:?}");
            *names.entry(message.name()).or_insert(0) += 1;
        }
    }
    println!("{names:?}");
    for name in [
        "REQ", "REP", "RTU", "DREQ", "DREP", "REJ", "SIDR_REQ", "SIDR_REP",
    ] {
        assert!(names.contains_key(name), "no {name} in the captures");
    }
}
