//! Every packet sent and received, as a pcapng file that Wireshark opens.
//!
//! A socket shows neither IP nor UDP headers, so they are rebuilt here. They are such
//! that the ICRC verifies: with the IPv4 Identification that a packet was sent with, or
//! that its ICRC was found to belong to. The other fields are plausible, not observed.

use core::net::{IpAddr, SocketAddr};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use urxe_core::RxPath;
use urxe_core::transmit::TxBatch;
use urxe_udp::Datagram;
use urxe_wire::ROCE_V2_PORT as ROCE_PORT;
use urxe_wire::pcapng::{self, Direction, Interface, Packet};
use urxe_wire::{Gid, IcrcPolicy, IcrcVerdict, Ipv4, Ipv6, PROTOCOL_UDP, Udp};

use crate::error::Error;

/// Bytes gathered before they go to the file: some 100 full packets.
const BUFFER_BYTES: usize = 512 << 10;

/// The file.
#[derive(Debug)]
pub(crate) struct Tap {
    /// None once writing failed.
    file: Option<BufWriter<File>>,
    path: PathBuf,
    /// One packet, being put together.
    frame: Vec<u8>,
    /// The block around it.
    block: Vec<u8>,
}

impl Tap {
    /// Opens the file; `%p` in its name becomes the process id. If another context or
    /// process is writing to it, its own file beside it is taken. `comment` is written to its head.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn create(path: &Path, comment: &str) -> Result<Tap, Error> {
        let pid = std::process::id();
        let path = PathBuf::from(path.to_string_lossy().replace("%p", &pid.to_string()));
        let open = || -> io::Result<Tap> {
            let (path, file) = lock_some(path, pid)?;
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            let mut tap = Tap {
                file: Some(BufWriter::with_capacity(BUFFER_BYTES, file)),
                path,
                frame: Vec::with_capacity(1 << 13),
                block: Vec::with_capacity(1 << 13),
            };
            tap.write_header(comment);
            Ok(tap)
        };
        open().map_err(Error::io("opening the capture file"))
    }

    /// Notes all packets of a batch that is about to be sent.
    pub(crate) fn sent(&mut self, batch: &TxBatch) {
        let time = now_ns();
        for run in batch.runs() {
            let (source, dest) = (run.dest.local, run.dest.remote);
            let bytes = &batch.bytes()[run.range.clone()];
            for (place, packet) in run.packets(bytes).enumerate() {
                let headers = Headers {
                    source: SocketAddr::new(source, ROCE_PORT),
                    dest,
                    direction: Direction::Outbound,
                    tos: run.dest.tos,
                    ident: place as u16,
                };
                self.packet(time, &headers, packet);
            }
        }
    }

    /// Notes all packets of a datagram that was received.
    pub(crate) fn received(&mut self, path: &RxPath, datagram: &Datagram<'_>) {
        let time = now_ns();
        for (place, packet) in datagram.segments() {
            let hint = place as u16;
            let ident = match path.seed.verify_with(IcrcPolicy::SolveIdent, hint, packet) {
                IcrcVerdict::Ok { ident } => ident,
                IcrcVerdict::Bad => hint,
            };
            let headers = Headers {
                source: datagram.source,
                dest: path.local,
                direction: Direction::Inbound,
                tos: datagram.tos,
                ident,
            };
            self.packet(time, &headers, packet);
        }
    }

    /// Notes a packet that another owner of the address received, from here. One that was sealed gets the ICRC that it would have had.
    pub(crate) fn handed_over(&mut self, from: SocketAddr, path: &RxPath, packet: &[u8]) {
        let mut bytes = packet.to_vec();
        let plain = RxPath::new(from.ip(), from.port(), path.local, path.tos);
        if path.seed.is_in_memory() {
            plain.seed.seal(0, &mut bytes);
        }
        let datagram = Datagram {
            data: &bytes,
            segment_size: bytes.len(),
            gap: 0,
            source: from,
            dst_ip: None,
            tos: path.tos,
            truncated: false,
        };
        self.received(&plain, &datagram);
    }

    pub(crate) fn flush(&mut self) {
        self.write(|file| file.flush());
    }

    fn packet(&mut self, time_ns: u64, headers: &Headers, packet: &[u8]) {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        headers.write(packet, &mut frame);
        let packet = Packet {
            time_ns,
            bytes: &frame,
            original_len: frame.len() as u32,
            direction: headers.direction,
            ..Packet::default()
        };
        self.write_block(|block| packet.write(block));
        self.frame = frame;
    }

    fn write_header(&mut self, comment: &str) {
        self.write_block(|block| {
            pcapng::section(block, "", comment);
            let interface = Interface {
                link_type: pcapng::LINKTYPE_RAW,
                name: "",
                description: "",
                speed: None,
            };
            pcapng::interface(block, &interface);
        });
    }

    fn write_block(&mut self, make: impl FnOnce(&mut Vec<u8>)) {
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        make(&mut block);
        self.write(|file| file.write_all(&block));
        self.block = block;
    }

    /// A full disk must not disturb the traffic: the tap says so once, and is off.
    fn write(&mut self, what: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let Some(file) = &mut self.file else { return };
        let Err(error) = what(file) else { return };
        // The message itself may have nowhere to go.
        let _ = writeln!(
            io::stderr(),
            "urxe: writing the capture file {} failed ({error}); it is not continued",
            self.path.display()
        );
        if let Some(file) = self.file.take() {
            // What is still gathered would fail again.
            let _ = file.into_parts();
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The file itself, or one beside it if that is in use.
fn lock_some(path: PathBuf, pid: u32) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut candidate = path.clone();
    loop {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&candidate)?;
        let whole = file.metadata()?.is_file();
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if whole => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                let extension = path
                    .extension()
                    .unwrap_or("pcapng".as_ref())
                    .to_string_lossy();
                candidate = path.with_extension(format!("{pid}.{number}.{extension}"));
            }
            // Devices and file systems without locks: nothing to protect.
            _ => return Ok((candidate, file)),
        }
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// What of the IP and UDP headers is not the same for all packets, and which way the packet went.
struct Headers {
    source: SocketAddr,
    dest: IpAddr,
    direction: Direction,
    tos: u8,
    ident: u16,
}

const TTL: u8 = 64;

impl Headers {
    fn write(&self, packet: &[u8], frame: &mut Vec<u8>) {
        let mut udp = Udp {
            src_port: self.source.port(),
            dst_port: ROCE_PORT,
            len: (packet.len() + Udp::LEN) as u16,
            checksum: 0,
        };
        match (self.source.ip(), self.dest) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut ip = Ipv4 {
                    tos: self.tos,
                    total_len: udp.len + Ipv4::LEN as u16,
                    ident: self.ident,
                    flags_and_offset: Ipv4::DF,
                    ttl: TTL,
                    protocol: PROTOCOL_UDP,
                    checksum: 0,
                    src,
                    dst,
                };
                ip.checksum = ip.computed_checksum();
                frame.extend_from_slice(&ip.emit());
            }
            (source, dest) => {
                let ip = Ipv6 {
                    traffic_class: self.tos,
                    flow_label: 0,
                    payload_len: udp.len,
                    next_header: PROTOCOL_UDP,
                    hop_limit: TTL,
                    src: Gid::from(source).0.into(),
                    dst: Gid::from(dest).0.into(),
                };
                // Zero would mean an invalid packet over IPv6.
                udp.checksum = udp_checksum(&ip, &udp, packet);
                frame.extend_from_slice(&ip.emit());
            }
        }
        frame.extend_from_slice(&udp.emit());
        frame.extend_from_slice(packet);
    }
}

/// The checksum over the pseudo-header, the header and the packet (RFC 8200, 8.1).
fn udp_checksum(ip: &Ipv6, udp: &Udp, packet: &[u8]) -> u16 {
    let pseudo = [udp.len, u16::from(PROTOCOL_UDP)].map(u16::to_be_bytes);
    let (src, dst) = (ip.src.octets(), ip.dst.octets());
    let parts = [&src[..], &dst, pseudo.as_flattened(), &udp.emit(), packet];
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    // 32,768 words at most, so the sum fits.
    let sum = (sum >> 16) + (sum & 0xffff);
    match !(((sum >> 16) + (sum & 0xffff)) as u16) {
        0 => 0xffff,
        checksum => checksum,
    }
}
