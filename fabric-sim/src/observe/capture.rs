//! Captures: every frame at every port, as a pcapng file that says why frames were dropped, marked or held up.

use core::fmt::{self, Write as _};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;

use urxe_wire::pcapng::{self, Direction, Interface, Packet};
use urxe_wire::{EtherType, Ethernet, PAUSE_DESTINATION, Pause};

use crate::Sim;
use crate::engine::{Span, Time};
use crate::envelope::{FLOW_HEADERS_LEN, flow_headers};
use crate::fabric::{DropReason, Fabric, PauseCause, Tap, TapEvent, mac_of};
use crate::frame::{Frame, Payload};
use crate::observe::port_labels;
use crate::qos::{PRIORITIES, Qos};
use crate::topology::{PortId, PortName};

/// Writes a capture of a simulation in [`Mode::Bytes`](crate::Mode::Bytes).
///
/// Each port is an interface. A frame is in it when it begins to leave a port (outbound), and when it has arrived as
/// a whole (inbound); one that ended elsewhere, once more where it ended. Times are virtual, in nanoseconds from the
/// start. Frames of plain flows, which have no content, are datagrams to port 9 (discard) of which only the
/// headers are there; link-level credits are frames of the EtherType for local experiments. Of packets in `lite` mode
/// there is only the length.
///
/// [`captured`] is the short way to one.
pub struct Capture<W> {
    out: W,
    /// Why nothing more is written.
    fault: Option<io::Error>,
    ports: Vec<Notes>,
    qos: Qos,
    /// Frames of this instant, of which something may still be said.
    now: Time,
    instant: Vec<Record>,
    /// Their bytes, one after the other.
    bytes: Vec<u8>,
    block: Vec<u8>,
}

/// What is known of a port.
#[derive(Debug)]
struct Notes {
    /// `s0p3 (s0>h2)`.
    name: String,
    queues: [u64; PRIORITIES],
    paused_since: [Time; PRIORITIES],
    /// How long the class was paused, until the first frame leaves after it.
    waited: [Option<Span>; PRIORITIES],
    /// Pause frames that wait to leave, and why they were made.
    told: VecDeque<(Pause, PauseCause)>,
}

/// What tells one frame from another.
type Key = (u64, Time, u32);

#[derive(Debug)]
struct Record {
    port: PortId,
    key: Key,
    direction: Direction,
    has_bad_check: bool,
    /// Where its bytes end; they begin where those of the one before end.
    bytes_end: usize,
    original_len: u32,
    comment: String,
}

/// Runs a simulation, and writes a capture of it.
///
/// ```
/// use fabric_sim::host::StreamSpec;
/// use fabric_sim::observe::captured;
/// use fabric_sim::{FabricConfig, HostId, Link, Rate, Sim, Topology};
///
/// let topology = Topology::single_switch(3, Link::new(Rate::gbps(100)));
/// let mut sim = Sim::new(topology, FabricConfig::default())?;
/// sim.add_stream(StreamSpec::write(HostId(0), HostId(2), 5_000))?;
/// let file = captured(&mut sim, Vec::new(), "five packets", Sim::run)?;
/// assert!(file.len() > 4 * 5_000, "out of h0, into s0, out of s0, into h2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What writing says; the simulation has run nevertheless.
pub fn captured<W: Write + 'static>(
    sim: &mut Sim,
    out: W,
    comment: &str,
    run: impl FnOnce(&mut Sim),
) -> io::Result<W> {
    let capture = Capture::new(sim.fabric(), out, comment)?;
    let capture = Rc::new(RefCell::new(capture));
    sim.fabric_mut().add_tap(Box::new(Rc::clone(&capture)));
    run(sim);
    drop(sim.fabric_mut().take_tap());
    let capture = Rc::into_inner(capture).expect("the tap is gone");
    capture.into_inner().finish()
}

impl<W: Write> Capture<W> {
    /// Begins a capture; `comment` is kept in the file's header.
    ///
    /// # Errors
    /// What writing says.
    pub fn new(fabric: &Fabric, out: W, comment: &str) -> io::Result<Capture<W>> {
        let topology = fabric.topology();
        let mut block = Vec::new();
        pcapng::section(&mut block, "urxe sim", comment);
        let mut ports = Vec::new();
        for (port, label) in topology.ports().zip(port_labels(topology)) {
            let way = PortName(topology, port).to_string();
            let interface = Interface {
                link_type: pcapng::LINKTYPE_ETHERNET,
                name: &label,
                description: &way,
                speed: Some(topology.link_at(port).rate.as_bps()),
            };
            pcapng::interface(&mut block, &interface);
            ports.push(Notes {
                name: format!("{label} ({way})"),
                queues: [0; PRIORITIES],
                paused_since: [Time::ZERO; PRIORITIES],
                waited: [None; PRIORITIES],
                told: VecDeque::new(),
            });
        }
        let mut capture = Capture {
            out,
            fault: None,
            ports,
            qos: fabric.config().qos.clone(),
            now: Time::ZERO,
            instant: Vec::new(),
            bytes: Vec::new(),
            block,
        };
        capture.out.write_all(&capture.block)?;
        Ok(capture)
    }

    /// Writes what is still held back, and gives back where it was written. To be called at the end of the run.
    ///
    /// # Errors
    /// The first that writing said, now or during the run: nothing was written after it.
    pub fn finish(mut self) -> io::Result<W> {
        self.write_instant();
        match self.fault {
            Some(fault) => Err(fault),
            None => self.out.flush().map(|()| self.out),
        }
    }

    /// Writes all frames of an instant that is over.
    fn write_instant(&mut self) {
        self.block.clear();
        let mut start = 0;
        for record in self.instant.drain(..) {
            let packet = Packet {
                interface: record.port.0,
                time_ns: self.now.ps() / 1000,
                bytes: &self.bytes[start..record.bytes_end],
                original_len: record.original_len,
                direction: record.direction,
                has_bad_check: record.has_bad_check,
                comment: &record.comment,
            };
            start = record.bytes_end;
            packet.write(&mut self.block);
        }
        self.bytes.clear();
        if self.fault.is_none() && !self.block.is_empty() {
            self.fault = self.out.write_all(&self.block).err();
        }
    }

    fn add(&mut self, port: PortId, frame: &Frame, bytes: &[u8], direction: Direction) {
        self.bytes.extend_from_slice(bytes);
        match frame.payload {
            Payload::Flow { flow, packet, .. } => {
                let mut headers = [0; FLOW_HEADERS_LEN];
                let len = flow_headers(&mut headers, frame, (flow, packet), &self.qos);
                self.bytes.extend_from_slice(&headers[..len]);
            }
            Payload::Grant { qpn, packets } => {
                let mut headers = [0; FLOW_HEADERS_LEN];
                let len = flow_headers(&mut headers, frame, (qpn, packets as u32), &self.qos);
                self.bytes.extend_from_slice(&headers[..len]);
            }
            Payload::Credit { priority, limit } => {
                self.bytes
                    .extend_from_slice(&credit_frame(port, priority, limit));
            }
            _ => {}
        }
        self.instant.push(Record {
            port,
            key: key_of(frame),
            direction,
            has_bad_check: false,
            bytes_end: self.bytes.len(),
            original_len: frame.len - 4,
            comment: String::new(),
        });
    }

    /// The record of a frame that has arrived just now, if that was the last that has.
    fn just_arrived(&mut self, frame: &Frame) -> Option<&mut Record> {
        let mut records = self.instant.iter_mut().rev();
        let last = records.find(|r| r.direction == Direction::Inbound)?;
        (last.key == key_of(frame)).then_some(last)
    }

    fn sending(&mut self, port: PortId, frame: &Frame, bytes: &[u8]) {
        self.add(port, frame, bytes, Direction::Outbound);
        let Some(record) = self.instant.last_mut() else {
            return;
        };
        let notes = &mut self.ports[port.index()];
        match frame.payload {
            Payload::Pause { pause, .. } => {
                if notes.told.front().is_some_and(|(told, _)| *told == pause)
                    && let Some((_, cause)) = notes.told.pop_front()
                {
                    record.say(format_args!("{}", Why(cause, &notes.name)));
                }
            }
            Payload::Credit { .. } => {}
            _ => {
                if let Some(waited) = notes.waited[usize::from(frame.priority)].take() {
                    let class = frame.priority;
                    record.say(format_args!(
                        "waited: class {class} of {} was paused for {waited}",
                        notes.name
                    ));
                }
            }
        }
    }

    fn dropped(&mut self, port: PortId, frame: &Frame, bytes: &[u8], reason: DropReason) {
        if self.just_arrived(frame).is_none() {
            let direction = match reason {
                DropReason::BitError => Direction::Inbound,
                _ => Direction::Unknown,
            };
            self.add(port, frame, bytes, direction);
        }
        let place = self.instant.iter().rposition(|r| r.key == key_of(frame));
        if let Some(place) = place {
            let record = &mut self.instant[place];
            record.has_bad_check = reason == DropReason::BitError;
            record.say(format_args!(
                "dropped ({}): {}; class {} at {}",
                reason.name(),
                reason.explanation(),
                frame.priority,
                self.ports[port.index()].name
            ));
        }
    }

    fn marked(&mut self, port: PortId, frame: &Frame) {
        let held = self.ports[port.index()].queues[usize::from(frame.priority)];
        let place = self.instant.iter().rposition(|r| r.key == key_of(frame));
        if let Some(place) = place {
            self.instant[place].say(format_args!(
                "marked (CE) as it joins the queue of {}: class {} holds {held} bytes",
                self.ports[port.index()].name,
                frame.priority
            ));
        }
    }

    fn paused(&mut self, now: Time, port: PortId, class: usize, is_paused: bool) {
        let notes = &mut self.ports[port.index()];
        if is_paused {
            notes.paused_since[class] = now;
        } else if notes.queues[class] > 0 {
            notes.waited[class] = Some(now.since(notes.paused_since[class]));
        }
    }
}

impl<W: Write + 'static> Tap for Capture<W> {
    fn event(&mut self, now: Time, event: &TapEvent<'_>) {
        if now != self.now {
            self.write_instant();
            self.now = now;
        }
        match *event {
            TapEvent::Sending { port, frame, bytes } => self.sending(port, frame, bytes),
            TapEvent::Arrived { port, frame, bytes } => {
                self.add(port, frame, bytes, Direction::Inbound);
            }
            TapEvent::Dropped {
                port,
                frame,
                bytes,
                reason,
            } => self.dropped(port, frame, bytes, reason),
            TapEvent::Marked { port, frame } => self.marked(port, frame),
            TapEvent::Paused {
                port,
                priority,
                is_paused,
            } => self.paused(now, port, usize::from(priority), is_paused),
            TapEvent::Queue {
                port,
                priority,
                bytes,
            } => self.ports[port.index()].queues[usize::from(priority)] = bytes,
            TapEvent::Telling { port, pause, cause } => {
                self.ports[port.index()].told.push_back((pause, cause));
            }
            TapEvent::Buffered { .. } => {}
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn core::any::Any> {
        self
    }
}

impl<W> fmt::Debug for Capture<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Capture");
        debug.field("ports", &self.ports.len());
        debug.field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl Record {
    fn say(&mut self, text: fmt::Arguments<'_>) {
        if !self.comment.is_empty() {
            self.comment.push_str("; ");
        }
        // Text of ours into memory: it cannot fail.
        let _ = self.comment.write_fmt(text);
    }
}

/// Why a pause frame leaves the port of a name.
struct Why<'a>(PauseCause, &'a str);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Why(cause, name) = *self;
        match cause {
            PauseCause::Full { priority, held } => write!(
                f,
                "stop class {priority}: {held} bytes of it came through {name} and wait"
            ),
            PauseCause::Free { priority, held } => write!(
                f,
                "go on with class {priority}: {held} bytes of it came through {name} and wait"
            ),
            PauseCause::Again => write!(f, "told again: {name} has not yet room"),
            PauseCause::Asked => write!(f, "sent for no need of {name}'s own"),
        }
    }
}

fn key_of(frame: &Frame) -> Key {
    (frame.digest, frame.born, frame.flow_hash)
}

/// For local experiments (IEEE 802).
const LOCAL_EXPERIMENT: EtherType = EtherType(0x88b5);

/// A frame for what has none in Ethernet.
fn credit_frame(port: PortId, priority: u8, limit: u64) -> [u8; 60] {
    let mut frame = [0; 60];
    let ethernet = Ethernet {
        dst: PAUSE_DESTINATION,
        src: mac_of(port),
        tags: [None, None],
        ethertype: LOCAL_EXPERIMENT,
    };
    let at = ethernet.emit(&mut frame);
    frame[at] = priority;
    frame[at + 1..at + 9].copy_from_slice(&limit.to_be_bytes());
    frame
}
