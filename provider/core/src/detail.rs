//! Details of a failure beyond its [`Fault`]: which check failed, what it expected and
//! what it found. Put together once, when a QP fails; never on the packet path.

use core::fmt::{self, Write as _};

use urxe_wire::Rkey;

use crate::error::Fault;
use crate::mr::{Access, MrTable, PdId};
use crate::work::Sge;

/// Why a QP failed, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ErrorDetail {
    /// The check that refused, and its side.
    pub fault: Fault,
    /// The work request that failed with it; the others are flushed. None if the peer's
    /// request failed before it took a receive.
    pub wr_id: Option<u64>,
    /// What would have been right.
    pub expected: String,
    /// What was there instead.
    pub found: String,
    /// What to look at first, where that can be told from this side.
    pub hint: Option<&'static str>,
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.fault, self.finding())
    }
}

impl ErrorDetail {
    /// What was expected and found, and the hint: beside a completion, which says the rest.
    pub fn finding(&self) -> String {
        let Self {
            expected, found, ..
        } = self;
        let hint = self.hint.map_or(String::new(), |hint| format!("; {hint}"));
        format!("expected {expected}, found {found}{hint}")
    }
}

/// Expected, found, hint.
pub(crate) type Finding = (String, String, Option<&'static str>);

/// Names of access rights.
pub(crate) fn rights(access: Access) -> String {
    const NAMES: [(u32, &str); 7] = [
        (1, "LOCAL_WRITE"),
        (2, "REMOTE_WRITE"),
        (4, "REMOTE_READ"),
        (8, "REMOTE_ATOMIC"),
        (0x10, "MW_BIND"),
        (0x100, "FLUSH_GLOBAL"),
        (0x200, "FLUSH_PERSISTENT"),
    ];
    let mut text = String::new();
    for (bit, name) in NAMES {
        if access.0 & bit != 0 {
            let separator = if text.is_empty() { "" } else { "|" };
            write!(text, "{separator}{name}").expect("a string takes everything");
        }
    }
    if text.is_empty() {
        text.push_str("no rights");
    }
    text
}

/// Why a peer's access was refused; the same checks again, in words.
pub(crate) fn remote_access(
    mrs: &MrTable,
    rkey: Rkey,
    pd: PdId,
    (addr, len): (u64, u64),
    need: Access,
) -> Finding {
    let facts = match mrs.facts(rkey.0) {
        Some(facts) if facts.keys.rkey == rkey && facts.rkey_valid => facts,
        Some(facts) if facts.keys.rkey == rkey => {
            let found = format!("rkey {:#010x}, which was invalidated", rkey.0);
            return ("a valid rkey".into(), found, None);
        }
        Some(_) => {
            return (
                "an rkey".into(),
                format!("{:#010x}, which is the lkey of an MR", rkey.0),
                Some("send peers the MR's rkey"),
            );
        }
        None => {
            return (
                "the rkey of a registered MR".into(),
                format!("{:#010x}, which none has", rkey.0),
                Some("was the MR deregistered, or the key sent in another byte order?"),
            );
        }
    };
    region(&facts, pd, (addr, len), need)
}

/// Why a local scatter/gather list was refused: the first entry that is.
pub(crate) fn local_access(mrs: &MrTable, sges: &[Sge], pd: PdId, need: Access) -> Finding {
    for (place, sge) in sges.iter().enumerate().filter(|(_, sge)| sge.length > 0) {
        let len = sge.length as usize;
        if mrs.check_local(sge.lkey, pd, sge.addr, len, need).is_ok() {
            continue;
        }
        let (expected, found, hint) = match mrs.facts(sge.lkey.0) {
            Some(facts) if facts.keys.lkey == sge.lkey => {
                region(&facts, pd, (sge.addr, sge.length.into()), need)
            }
            Some(_) => (
                "an lkey".into(),
                format!("{:#010x}, which is the rkey of an MR", sge.lkey.0),
                Some("local entries take the MR's lkey"),
            ),
            None => (
                "the lkey of a registered MR".into(),
                format!("{:#010x}, which none has", sge.lkey.0),
                Some("was the MR deregistered before the request completed?"),
            ),
        };
        return (expected, format!("{found} (SGE {place})"), hint);
    }
    let expected = "memory that can be reached".into();
    (expected, "memory that cannot".into(), None)
}

fn region(facts: &MrFacts, pd: PdId, (addr, len): (u64, u64), need: Access) -> Finding {
    let init = &facts.init;
    if init.pd != pd {
        return (
            format!("an MR of protection domain {}, as the QP", pd.0),
            format!("one of protection domain {}", init.pd.0),
            Some("register the memory in the QP's PD"),
        );
    }
    if init.offset_of(addr, len).is_none() {
        let (iova, size) = (init.iova, init.len);
        return (
            format!("{len} bytes within the MR, {iova:#x} and {size} bytes from there"),
            format!("{len} bytes at {addr:#x}"),
            None,
        );
    }
    (
        format!("an MR with {}", rights(need)),
        format!("one with {}", rights(init.access)),
        Some("register it with the right that is missing"),
    )
}

/// A region as reports see it; see [`MrTable::facts`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct MrFacts {
    pub(crate) keys: crate::mr::MrKeys,
    pub(crate) rkey_valid: bool,
    pub(crate) init: crate::mr::MrInit,
}
