//! What the kernel's RDMA subsystem answers over netlink (`NETLINK_RDMA`), of the devices in the tree: their names, ports and
//! network interfaces. `rdma link`, UCX and others ask for these.
//!
//! Requests are bytes of the program: what is cut short or not understood is answered with an error, as the kernel does.

use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Of a message: length, type, flags, sequence number, port.
const HEADER: usize = 16;
/// `NLMSG_ERROR`, `NLMSG_DONE`
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_MULTI`, `NLM_F_ACK`, `NLM_F_DUMP`
const MULTI: u16 = 0x2;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
/// `RDMA_NL_NLDEV`, in the type of a message above its command.
const NLDEV: u16 = 5;
/// `RDMA_NLDEV_CMD_*`
const GET: u16 = 1;
const PORT_GET: u16 = 5;
const SYS_GET: u16 = 6;
/// `RDMA_NLDEV_ATTR_*`
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const FW_VERSION: u16 = 5;
const NODE_GUID: u16 = 6;
const SYS_IMAGE_GUID: u16 = 7;
const PORT_STATE: u16 = 12;
const PORT_PHYS_STATE: u16 = 13;
const DEV_NODE_TYPE: u16 = 14;
const NDEV_INDEX: u16 = 50;
const NDEV_NAME: u16 = 51;
const NETNS_MODE: u16 = 66;
const DEV_PROTOCOL: u16 = 67;
/// Network namespaces share the devices: the kernel's default.
const SHARED: u8 = 1;
/// A channel adapter; its port is active, and its link is up.
const CA: u8 = 1;
const ACTIVE: u8 = 4;
const LINK_UP: u8 = 5;

/// The datagrams that answer a datagram of requests.
pub(crate) fn answer(root: &Path, requests: &[u8]) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let mut rest = requests;
    while let Some(request) = Request::parse(rest) {
        answers.extend(request.answer(root));
        rest = rest.get(request.len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    answers
}

struct Request<'a> {
    len: usize,
    kind: u16,
    flags: u16,
    header: &'a [u8],
    attributes: &'a [u8],
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let header = bytes.get(..HEADER)?;
        let len = number(header, 0)? as usize;
        Some(Request {
            len,
            kind: half(header, 4)?,
            flags: half(header, 6)?,
            header,
            attributes: bytes.get(HEADER..len)?,
        })
    }

    fn answer(&self, root: &Path) -> Vec<Vec<u8>> {
        let mut answers = match self.messages(root) {
            Ok(messages) => messages,
            Err(errno) => return vec![self.result(errno)],
        };
        if self.is_dump() {
            answers.push(self.message(DONE, MULTI, &0_i32.to_ne_bytes()));
        } else if self.flags & ACK != 0 {
            answers.push(self.result(0));
        }
        answers
    }

    fn is_dump(&self) -> bool {
        self.flags & DUMP == DUMP
    }

    /// What was asked for, or an error number.
    fn messages(&self, root: &Path) -> Result<Vec<Vec<u8>>, i32> {
        let (client, command) = (self.kind >> 10, self.kind & 0x3ff);
        if client != NLDEV {
            return Err(libc::EINVAL);
        }
        let about: fn(&Device) -> Vec<u8> = match command {
            GET => Device::attributes,
            PORT_GET => Device::port_attributes,
            SYS_GET => {
                return Ok(vec![self.message(
                    self.kind,
                    0,
                    &attribute(NETNS_MODE, &[SHARED]),
                )]);
            }
            _ => return Err(libc::EOPNOTSUPP),
        };
        let index = self.attribute(DEV_INDEX);
        let all = self.is_dump() && index.is_none();
        let devices = devices(root);
        let mut wanted = devices
            .iter()
            .filter(|d| all || Some(d.index) == index)
            .peekable();
        if !all && wanted.peek().is_none() {
            return Err(libc::ENODEV);
        }
        if command == PORT_GET && self.attribute(PORT_INDEX).is_some_and(|port| port != 1) {
            return Err(libc::EINVAL);
        }
        let flags = if self.is_dump() { MULTI } else { 0 };
        Ok(wanted
            .map(|device| self.message(self.kind, flags, &about(device)))
            .collect())
    }

    /// An attribute with a number.
    fn attribute(&self, wanted: u16) -> Option<u32> {
        let mut rest = self.attributes;
        loop {
            let (len, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
            if kind == wanted {
                return number(rest, 4).filter(|_| len == 8);
            }
            rest = rest.get(len.max(4).next_multiple_of(4)..)?;
        }
    }

    /// A message to the sender of the request, with its sequence number and port.
    fn message(&self, kind: u16, flags: u16, content: &[u8]) -> Vec<u8> {
        let len = (HEADER + content.len()) as u32;
        let mut message = len.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(&self.header[8..]);
        message.extend(content);
        message
    }

    /// An error, or 0 as the acknowledgement; the request's header goes back with it.
    fn result(&self, errno: i32) -> Vec<u8> {
        let mut content = (-errno).to_ne_bytes().to_vec();
        content.extend(self.header);
        self.message(ERROR, 0, &content)
    }
}

/// A device of the tree.
struct Device {
    index: u32,
    name: String,
    folder: PathBuf,
}

/// In the order of the list that verbs show, by which they have their numbers.
fn devices(root: &Path) -> Vec<Device> {
    let classes = root.join("sys/class");
    let found = (0..).map_while(|index| {
        let file = format!("infiniband_verbs/uverbs{index}/ibdev");
        let name = read(&classes.join(file))?;
        let folder = classes.join("infiniband").join(&name);
        Some(Device {
            index,
            name,
            folder,
        })
    });
    found.collect()
}

impl Device {
    /// Its index and name, which come first in every message about it.
    fn names(&self) -> Vec<u8> {
        let mut text = attribute(DEV_INDEX, &self.index.to_ne_bytes());
        text.extend(string(DEV_NAME, &self.name));
        text
    }

    fn attributes(&self) -> Vec<u8> {
        let mut all = self.names();
        // How many ports there are.
        all.extend(attribute(PORT_INDEX, &1_u32.to_ne_bytes()));
        all.extend(string(FW_VERSION, &self.file("fw_ver")));
        let guid = self.file("node_guid").replace(':', "");
        let guid = u64::from_str_radix(&guid, 16).unwrap_or(0).to_ne_bytes();
        all.extend(attribute(NODE_GUID, &guid));
        all.extend(attribute(SYS_IMAGE_GUID, &guid));
        all.extend(attribute(DEV_NODE_TYPE, &[CA]));
        all.extend(string(DEV_PROTOCOL, "roce"));
        all
    }

    fn port_attributes(&self) -> Vec<u8> {
        let mut all = self.names();
        all.extend(attribute(PORT_INDEX, &1_u32.to_ne_bytes()));
        all.extend(attribute(PORT_STATE, &[ACTIVE]));
        all.extend(attribute(PORT_PHYS_STATE, &[LINK_UP]));
        let interface = self.file("ports/1/gid_attrs/ndevs/0");
        if let Some(index) = interface_index(&interface) {
            all.extend(attribute(NDEV_INDEX, &index.to_ne_bytes()));
            all.extend(string(NDEV_NAME, &interface));
        }
        all
    }

    fn file(&self, name: &str) -> String {
        read(&self.folder.join(name)).unwrap_or_default()
    }
}

fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

fn string(kind: u16, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    attribute(kind, &bytes)
}

/// Length, kind, content, and up to a multiple of four.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let len = 4 + content.len();
    let mut bytes = (len as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(content);
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: u16, flags: u16, attributes: &[u8]) -> Vec<u8> {
        let len = (HEADER + attributes.len()) as u32;
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend((NLDEV << 10 | command).to_ne_bytes());
        bytes.extend((1 | flags).to_ne_bytes());
        bytes.extend(77_u32.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(attributes);
        bytes
    }

    fn tree() -> PathBuf {
        let root = std::env::temp_dir().join(format!("urxe-nldev-{}", std::process::id()));
        let classes = root.join("sys/class");
        for (index, name) in ["one", "two"].iter().enumerate() {
            let verbs = classes.join(format!("infiniband_verbs/uverbs{index}"));
            let ndevs = classes
                .join("infiniband")
                .join(name)
                .join("ports/1/gid_attrs/ndevs");
            std::fs::create_dir_all(&verbs).expect("a folder");
            std::fs::create_dir_all(&ndevs).expect("a folder");
            std::fs::write(verbs.join("ibdev"), format!("{name}\n")).expect("a file");
            std::fs::write(ndevs.join("0"), "lo\n").expect("a file");
        }
        root
    }

    /// Type of each message, and whether a text is in it.
    fn kinds(answers: &[Vec<u8>], text: &str) -> Vec<(u16, bool)> {
        let has = |message: &Vec<u8>| message.windows(text.len()).any(|w| w == text.as_bytes());
        let kind = |message: &Vec<u8>| Some((half(message, 4)?, has(message)));
        answers.iter().filter_map(kind).collect()
    }

    #[test]
    fn what_is_asked_for_is_told_and_nothing_else() {
        let root = tree();
        let asked =
            |command, flags, attributes: &[u8]| answer(&root, &request(command, flags, attributes));
        let type_of = |command| NLDEV << 10 | command;
        let dump = asked(GET, DUMP, &[]);
        assert_eq!(
            kinds(&dump, "two"),
            [(type_of(GET), false), (type_of(GET), true), (DONE, false)]
        );
        assert!(dump.iter().all(|message| number(message, 8) == Some(77)));

        let second = attribute(DEV_INDEX, &1_u32.to_ne_bytes());
        let port = [second.clone(), attribute(PORT_INDEX, &1_u32.to_ne_bytes())].concat();
        let answers = asked(PORT_GET, ACK, &port);
        assert_eq!(
            kinds(&answers, "two"),
            [(type_of(PORT_GET), true), (ERROR, false)]
        );
        assert_eq!(kinds(&answers[..1], "lo"), [(type_of(PORT_GET), true)]);
        assert_eq!(number(&answers[1], HEADER), Some(0));

        let third = attribute(DEV_INDEX, &2_u32.to_ne_bytes());
        for (command, attributes) in [(GET, third), (GET, Vec::new()), (99, second)] {
            let answers = asked(command, ACK, &attributes);
            assert_eq!(kinds(&answers, "x"), [(ERROR, false)]);
            assert_ne!(number(&answers[0], HEADER), Some(0));
        }
        std::fs::remove_dir_all(&root).expect("it is ours");
    }

    #[test]
    fn requests_that_are_cut_short_are_survived() {
        let root = Path::new("/nonexistent");
        let whole = request(GET, 0, &attribute(DEV_INDEX, &[0; 4]));
        for len in 0..whole.len() {
            assert!(answer(root, &whole[..len]).is_empty(), "{len}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                assert!(answer(root, &bytes).len() <= 4);
            }
        }
    }
}
