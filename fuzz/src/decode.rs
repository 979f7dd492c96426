//! Capture files, as `urxe decode` reads them: whatever the bytes, reading returns, with frames that lie within the file or
//! an error that names a place in it; what is printed is a line a frame, without characters that a terminal obeys.

use std::io::{self, Read};

use urxe_wire::pcapng;

// The command's own reader, from where it lives.
#[path = "../../cli/src/decode/capture.rs"]
mod capture;
#[path = "../../cli/src/decode/finding.rs"]
mod finding;
#[path = "../../cli/src/decode/lines.rs"]
mod lines;

use capture::{CaptureError, CaptureReader, Captured};
use finding::Summary;
use lines::Ended;

/// Input: a file.
pub fn target(data: &[u8]) {
    let frames = frames_of(data);
    let (text, summary) = text_of(data);
    let has_end = usize::from(!text.is_empty() && !text.ends_with('\n'));
    assert_eq!(text.lines().count(), frames.len() + has_end);
    assert_eq!(summary.packets, frames.len() as u64);
    assert!(summary.faults() <= summary.packets);
    let is_plain = |c: char| !c.is_control() || c == '\n';
    assert!(text.chars().all(is_plain), "{text:?}");
    // Where reads end makes no difference.
    assert_eq!(text_of(Pieces(data)).0, text);
    written_again(&frames);
}

/// All frames of a file, up to where it ends or is broken.
fn frames_of(data: &[u8]) -> Vec<Captured> {
    let mut frames: Vec<Captured> = Vec::new();
    let mut bytes = 0;
    let ended = CaptureReader::new(data).and_then(|mut reader| {
        while let Some(frame) = reader.next()? {
            bytes += frame.data.len();
            assert!(frame.data.len() <= frame.len_on_wire);
            frames.push(frame);
        }
        Ok(())
    });
    assert!(
        bytes <= data.len(),
        "frames have bytes that the file has not"
    );
    match ended {
        Ok(()) | Err(CaptureError::NotACapture) => {}
        Err(CaptureError::Truncated { offset } | CaptureError::Corrupt { offset, .. }) => {
            assert!(offset <= data.len() as u64, "a place behind the end");
        }
        Err(CaptureError::Io(error)) => panic!("there is nothing to fail: {error}"),
    }
    frames
}

fn text_of(reader: impl Read) -> (String, Summary) {
    let (mut out, mut summary) = (Vec::new(), Summary::default());
    let mut text = String::new();
    match lines::decode(reader, lines::Form::Text, |_| None, &mut out, &mut summary) {
        Ok(()) => {}
        Err(Ended::Capture(error)) => text = error.to_string(),
        Err(Ended::Output(error)) => panic!("memory takes everything: {error}"),
    }
    text.insert_str(0, &String::from_utf8(out).expect("it is text"));
    (text, summary)
}

/// A file that comes byte by byte, as through a pipe.
struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(1);
        self.0.read(&mut out[..len])
    }
}

/// What our own writer makes of the frames is read as the same frames.
fn written_again(frames: &[Captured]) {
    let mut file = Vec::new();
    pcapng::section(&mut file, "urxe", "");
    let mut expected = Vec::new();
    for (number, frame) in (0..).zip(frames) {
        let (Some(time_ns), Ok(original_len)) = (frame.time_ns, u32::try_from(frame.len_on_wire))
        else {
            return;
        };
        // The writer counts nanoseconds in 64 bits, which is until the year 2554.
        let time_ns = time_ns as u64;
        pcapng::interface(
            &mut file,
            &pcapng::Interface {
                link_type: frame.link_type,
                name: "it",
                description: "",
                speed: None,
            },
        );
        let packet = pcapng::Packet {
            interface: number,
            time_ns,
            bytes: &frame.data,
            original_len,
            ..pcapng::Packet::default()
        };
        packet.write(&mut file);
        expected.push(Captured {
            time_ns: Some(time_ns.into()),
            ..frame.clone()
        });
    }
    assert_eq!(read_back(&file), expected);
}

fn read_back(file: &[u8]) -> Vec<Captured> {
    let mut reader = CaptureReader::new(file).expect("we wrote it");
    let mut frames = Vec::new();
    while let Some(frame) = reader.next().expect("we wrote it") {
        frames.push(frame);
    }
    frames
}
