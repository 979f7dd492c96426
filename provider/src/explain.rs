//! Explains a number or name that this library reports: its meaning and usual cause.

use core::fmt;

use urxe_core::error::{DropReason, Fault, WcStatus};

use crate::event_type::EventType;
use crate::host::environment;
use crate::strict::StrictRule;

/// The explanation of one number or name; see [`explain`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The kind of the number or name.
    pub kind: Topic,
    /// Its name, as programs and this library write it.
    pub name: String,
    /// Its number, if it has one.
    pub number: Option<u32>,
    /// What it says, and what usually causes it: the most frequent first.
    pub text: String,
}

/// The kinds that can be explained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Topic {
    /// The status of a completion ([`WcStatus`]).
    Status,
    /// The `vendor_err` of a completion ([`Fault`]).
    VendorErr,
    /// An asynchronous event ([`EventType`]).
    Event,
    /// The number of an error, as [`crate::Error::errno`] gives it.
    Errno,
    /// A counter ([`crate::Context::counters`]).
    Counter,
    /// A rule of strict mode ([`StrictRule`]).
    StrictRule,
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Topic::Status => "completion status",
            Topic::VendorErr => "vendor_err",
            Topic::Event => "asynchronous event",
            Topic::Errno => "errno",
            Topic::Counter => "counter",
            Topic::StrictRule => "rule of strict mode",
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.number, self.kind) {
            (Some(number), Topic::VendorErr) => {
                write!(f, "{} {number:#x} ({})", self.kind, self.name)?;
            }
            (Some(number), _) => write!(f, "{} {} ({number})", self.kind, self.name)?,
            (None, _) => write!(f, "{} {}", self.kind, self.name)?,
        }
        write!(f, "\n  {}", self.text.replace('\n', "\n  "))
    }
}

/// Everything that a text may mean: a number (`12`, `0x201`), a name of verbs or of this
/// library (`IBV_WC_RETRY_EXC_ERR`, `retry_exc_err`, `EINVAL`, `QP_ACCESS_ERR`, `drop_icrc`, `lkey-as-rkey`),
/// or a line that contains such names, the numbers with what they are, or the words of the C library (`Failed status 10`,
/// `vendor_err 0x202`, `Invalid argument`), as a program prints it. Empty if it means nothing.
///
/// ```
/// let found = urxe::explain("0x202");
/// assert_eq!(found.len(), 1);
/// assert!(found[0].text.contains("wrong or stale rkey"));
/// // A number alone can be a status, an event and an errno.
/// assert!(urxe::explain("12").len() >= 3);
/// ```
pub fn explain(text: &str) -> Vec<Explanation> {
    let text = text.trim();
    let number = environment::number(&text.replacen("0X", "0x", 1));
    if let Some(number) = number.and_then(|number| u32::try_from(number).ok()) {
        return topics()
            .into_iter()
            .filter(|topic| topic.number == Some(number))
            .collect();
    }
    let words: Vec<String> = words(text).collect();
    let numbers = numbers(&words);
    let said = text.to_lowercase();
    let is_meant = |topic: &Explanation| {
        // A number says it best: words may fit several of its kind.
        let mut same_kind = numbers.iter().filter(|(kind, _)| *kind == topic.kind);
        if let Some((_, number)) = same_kind.next() {
            return topic.number == Some(*number);
        }
        let name = plain(&topic.name);
        words.contains(&name) || phrase(topic).is_some_and(|phrase| said.contains(&phrase))
    };
    let mut found: Vec<Explanation> = topics().into_iter().filter(is_meant).collect();
    if found.iter().any(|topic| topic.kind == Topic::VendorErr) {
        // The line says which it is: the others of its status are not meant.
        for topic in found.iter_mut().filter(|it| it.kind == Topic::Status) {
            let text = topic.text.lines();
            let kept: Vec<&str> = text.filter(|line| !line.starts_with(A_FAULT)).collect();
            topic.text = kept.join("\n");
        }
    }
    found
}

/// So begin the lines of a status that name its `vendor_err`s.
const A_FAULT: &str = "vendor_err ";

/// The numbers that a line says the kind of: `status 10`, `syndrom 0x88` (perftest), `vendor_err: 514`, `errno=22`.
fn numbers(words: &[String]) -> Vec<(Topic, u32)> {
    let pairs = words.iter().zip(words.iter().skip(1));
    let kind_of = |word: &str| match word {
        "status" => Some(Topic::Status),
        "syndrom" | "syndrome" | "vendorerr" | "vendorerror" => Some(Topic::VendorErr),
        "errno" => Some(Topic::Errno),
        "event" => Some(Topic::Event),
        _ => None,
    };
    pairs
        .filter_map(|(word, number)| {
            let number = u32::try_from(environment::number(number)?).ok()?;
            Some((kind_of(word)?, number))
        })
        .collect()
}

/// Everything that can be explained, in order of kind and number.
pub fn topics() -> Vec<Explanation> {
    let topic = |kind, name: &str, number, text: String| Explanation {
        kind,
        name: name.into(),
        number,
        text,
    };
    let statuses = WcStatus::ALL.iter().map(|&status| {
        let (name, text) = (status.verbs_name(), status_text(status));
        topic(Topic::Status, name, Some(status as u32), text)
    });
    let faults = Fault::ALL.iter().map(|&fault| {
        let text = format!("{fault}\nreported with {}", fault.status().verbs_name());
        topic(
            Topic::VendorErr,
            &format!("{fault:?}"),
            Some(fault as u32),
            text,
        )
    });
    let events = EventType::ALL.iter().map(|&event| {
        let text = match event.why_never() {
            Some(why) => format!("{event}\nnever raised here: {why}"),
            None => event.to_string(),
        };
        topic(Topic::Event, event.verbs_name(), Some(event as u32), text)
    });
    let errnos = ERRNOS
        .iter()
        .map(|&(number, name, text)| topic(Topic::Errno, name, Some(number as u32), text.into()));
    let counter = |name: &str, text: &str| topic(Topic::Counter, name, None, text.into());
    let drops = DropReason::ALL
        .iter()
        .map(|drop| counter(drop.name(), drop.meaning()));
    let core = urxe_core::Stats::MEANINGS.iter();
    let counters = core.chain(crate::engine::COUNTER_MEANINGS);
    let counters = counters.map(|(name, text)| counter(name, text.trim()));
    let rules = StrictRule::ALL.iter();
    let rules = rules.map(|rule| topic(Topic::StrictRule, rule.name(), None, rule.advice().into()));
    statuses
        .chain(faults)
        .chain(events)
        .chain(errnos)
        .chain(counters)
        .chain(drops)
        .chain(rules)
        .collect()
}

/// A status, and the reasons that it is reported for.
fn status_text(status: WcStatus) -> String {
    let mut text = status.to_string();
    if let Some(why) = status.why_never() {
        text.push_str("\nnever seen here: ");
        text.push_str(why);
    }
    if status != WcStatus::Success {
        let faults = Fault::ALL.iter().filter(|fault| fault.status() == status);
        text.extend(faults.map(|fault| format!("\n{A_FAULT}{:#x}: {fault}", *fault as u32)));
    }
    text
}

/// The errors that calls end with, by [`crate::Error::errno`].
const ERRNOS: &[(i32, &str, &str)] = &[
    (
        libc::EIO,
        "EIO",
        "a completion failed (its status and vendor_err say why), or the completion queue overran and lost one",
    ),
    (
        libc::ENOMEM,
        "ENOMEM",
        "a limit is reached: the send or receive queue is full (poll completions before posting more; unsignaled sends \
         hold their place until a later signaled one completes), or all QPs, CQs or memory regions are in use",
    ),
    (
        libc::EBUSY,
        "EBUSY",
        "the object is in use by others, which must go first",
    ),
    (
        libc::ENODEV,
        "ENODEV",
        "the object was made before a fork, by the parent process; or a thread panicked inside the engine. Open the \
         device again",
    ),
    (
        libc::EINVAL,
        "EINVAL",
        "the call asks for something that cannot be; the error's text names the attribute, its value and what is allowed. \
         Often: a QP in the wrong state, an attribute missing in the mask of modify, more SGEs or inline bytes than the \
         QP was created for, REMOTE_WRITE without LOCAL_WRITE. On the way to RTR, and for address handles: no GRH \
         (ah_attr.is_global is 0), without which RoCE has no address, or an sgid_index where no IP address is. URXE_VERBOSE=1 \
         (urxe run -v) prints the error's text for programs in C",
    ),
    (
        libc::EOPNOTSUPP,
        "EOPNOTSUPP",
        "the device does not offer it: a service that is not there, or a completion queue that ignores overruns",
    ),
    (
        libc::EADDRINUSE,
        "EADDRINUSE",
        "another program owns UDP port 4791 of the address: the kernel's rdma_rxe, or a program that is not urxe's. Unload or \
         end it, or open another address of this host",
    ),
    (
        libc::EADDRNOTAVAIL,
        "EADDRNOTAVAIL",
        "this host does not have the address, or the interface has none",
    ),
];

/// The words by which a line of output tells of a topic, where its name is not in it.
fn phrase(topic: &Explanation) -> Option<String> {
    match topic.kind {
        Topic::Status if topic.number != Some(0) => {
            let status = WcStatus::from_number(topic.number?)?;
            Some(status.to_string().to_lowercase())
        }
        Topic::VendorErr if topic.number != Some(0) => {
            let fault = Fault::from_vendor_err(topic.number?)?;
            Some(fault.to_string().to_lowercase())
        }
        // As the C library's `strerror` says it.
        Topic::Errno => {
            let number = topic.number?.cast_signed();
            let text = std::io::Error::from_raw_os_error(number).to_string();
            let text = text.split(" (os error").next()?;
            Some(text.to_lowercase())
        }
        Topic::StrictRule => Some(topic.name.clone()),
        _ => None,
    }
}

/// The names in a line, in the form in which they are compared.
fn words(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(move |c| !is_part(c))
        .filter(|word| !word.is_empty())
        .map(plain)
}

/// `IBV_WC_RETRY_EXC_ERR`, `RETRY_EXC_ERR` and `RetryExcErr` are one name.
fn plain(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let name = ["ibv_wc_", "ibv_event_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(&name);
    name.replace('_', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        explain(text).into_iter().map(|found| found.name).collect()
    }

    #[test]
    fn names_in_every_spelling() {
        for text in [
            "IBV_WC_RETRY_EXC_ERR",
            "RETRY_EXC_ERR",
            "RetryExcErr",
            "retry_exc_err",
            " IBV_WC_RETRY_EXC_ERR\n",
        ] {
            assert_eq!(names(text), ["IBV_WC_RETRY_EXC_ERR"], "{text:?}");
        }
        assert_eq!(names("QP_ACCESS_ERR"), ["IBV_EVENT_QP_ACCESS_ERR"]);
        assert_eq!(names("NakRemoteAccess"), ["NakRemoteAccess"]);
        assert_eq!(names("einval"), ["EINVAL"]);
        assert_eq!(names("drop_icrc"), ["drop_icrc"]);
        assert_eq!(names("out_of_seq_request"), ["out_of_seq_request"]);
        assert_eq!(names("nonsense"), Vec::<String>::new());
        assert_eq!(names(""), Vec::<String>::new());
    }

    #[test]
    fn numbers_in_both_bases() {
        assert_eq!(names("0x202"), ["NakRemoteAccess"]);
        assert_eq!(names("514"), ["NakRemoteAccess"]);
        let twelve = explain("12");
        let kinds: Vec<Topic> = twelve.iter().map(|found| found.kind).collect();
        assert_eq!(kinds, [Topic::Status, Topic::Event, Topic::Errno]);
        assert!(explain("4000000000").is_empty() && explain("-1").is_empty());
    }

    /// What a program prints about a failed completion is understood as it is.
    #[test]
    fn lines_of_output() {
        for &fault in Fault::ALL.iter().filter(|&&fault| fault != Fault::None) {
            let wc = crate::Wc {
                wr_id: 5,
                status: fault.status(),
                vendor_err: fault as u32,
                ..crate::Wc::default()
            };
            let found = names(&format!("client: {wc}, giving up"));
            assert!(found.contains(&format!("{fault:?}")), "{wc}: {found:?}");
            let status = fault.status().verbs_name().to_owned();
            assert!(found.contains(&status), "{wc}: {found:?}");
        }
    }

    /// What tools print, as it is.
    #[test]
    fn lines_of_perftest_and_others() {
        let line = "Completion with error at client: Failed status 10: wr_id 0 syndrom 0x88";
        assert_eq!(names(line), ["IBV_WC_REM_ACCESS_ERR"]);
        let line = "wc status remote access error (10), vendor syndrome: 0x202";
        assert_eq!(names(line), ["IBV_WC_REM_ACCESS_ERR", "NakRemoteAccess"]);
        // Of the status it says nothing of other causes.
        assert_eq!(explain(line)[0].text, "remote access error");
        assert!(explain("status 10")[0].text.contains("0x132"));
        let line = "failed to modify QP state to RTR: Invalid argument";
        assert_eq!(names(line), ["EINVAL"]);
        assert!(explain(line)[0].text.contains("is_global is 0"));
        assert_eq!(names("ibv_reg_mr: errno=12"), ["ENOMEM"]);
        assert_eq!(names("urxe strict: lkey-as-rkey"), ["lkey-as-rkey"]);
        // Other numbers are of other things.
        assert_eq!(names("vendor_err 0x88, wr_id 10"), Vec::<String>::new());
    }

    /// Every error that a call can end with has its number explained.
    #[test]
    fn every_topic_says_something() {
        for topic in topics() {
            assert!(topic.text.len() > 6, "{topic}");
            assert!(explain(&topic.name).contains(&topic), "{topic}");
            if let Some(number) = topic.number {
                assert!(explain(&number.to_string()).contains(&topic), "{topic}");
            }
        }
    }
}
