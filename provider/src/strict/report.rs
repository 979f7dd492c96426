//! Reports of strict mode: their text, and where they go.

use core::fmt;
use core::panic::Location;
use std::collections::{HashSet, VecDeque};

use urxe_wire::Qpn;

use super::mode::StrictMode;
use super::place::{Caller, Place};
use super::rule::StrictRule;

/// One finding of strict mode: a use of verbs that works by luck, or would not elsewhere.
///
/// As text it is what a newcomer needs: what happened, where the request was posted, why
/// it is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrictReport {
    /// The broken rule.
    pub rule: StrictRule,
    /// The work request, where the finding is about one.
    pub wr_id: Option<u64>,
    /// The QP, where the finding is about one.
    pub qpn: Option<Qpn>,
    /// The call that posted the work request, or that broke the rule.
    pub at: Option<&'static Location<'static>>,
    /// The call, if the program is not written in Rust ([`crate::name_callers`]).
    pub caller: Option<Caller>,
    /// How often it was found at this place since reports were last taken.
    pub count: u64,
    /// What happened, in one or two sentences.
    pub text: String,
}

impl StrictReport {
    pub(crate) fn new(rule: StrictRule, text: String) -> StrictReport {
        StrictReport {
            rule,
            wr_id: None,
            qpn: None,
            at: None,
            caller: None,
            count: 1,
            text,
        }
    }

    pub(crate) fn of(mut self, wr_id: u64, place: Place) -> StrictReport {
        self.wr_id = Some(wr_id);
        self.by(place)
    }

    pub(crate) fn on(mut self, qpn: impl Into<Option<Qpn>>) -> StrictReport {
        self.qpn = qpn.into();
        self
    }

    /// The call that broke the rule, where that is not the post.
    pub(crate) fn by(mut self, place: Place) -> StrictReport {
        (self.at, self.caller) = (Some(place.at), place.caller);
        self
    }

    fn place(&self) -> Option<Place> {
        let caller = self.caller;
        self.at.map(|at| Place { at, caller })
    }

    fn is_same_place(&self, other: &StrictReport) -> bool {
        (self.rule, self.qpn, self.place()) == (other.rule, other.qpn, other.place())
    }
}

impl fmt::Display for StrictReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "urxe strict: {}", self.rule)?;
        writeln!(f, "  what: {}", self.text)?;
        if let Some(place) = self.place() {
            writeln!(f, "  call: {place}")?;
        }
        if self.count > 1 {
            writeln!(f, "  seen: {} times", self.count)?;
        }
        writeln!(f, "  why:  {}", self.rule.advice())?;
        // An installed copy has no documents beside it.
        let repository = env!("CARGO_PKG_REPOSITORY");
        write!(
            f,
            "  more: {repository}/blob/main/docs/STRICT.md#{}",
            self.rule
        )
    }
}

/// Reports that wait for the program; more are counted with the last.
const REPORTS_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Reports {
    mode: StrictMode,
    waiting: VecDeque<StrictReport>,
    /// What was printed: the same kind of thing at the same place is printed once.
    printed: HashSet<(StrictRule, Option<Place>)>,
    /// The program takes the reports, so they need not be printed.
    are_taken: bool,
}

impl Reports {
    pub(super) fn new(mode: StrictMode) -> Reports {
        Reports {
            mode,
            waiting: VecDeque::new(),
            printed: HashSet::new(),
            are_taken: false,
        }
    }

    pub(super) fn add(&mut self, report: StrictReport) {
        if self.mode == StrictMode::Abort {
            print(&report);
            eprintln!("urxe strict: aborting, as URXE_STRICT=abort asks for");
            std::process::abort();
        }
        if let Some(same) = self.waiting.iter_mut().find(|r| r.is_same_place(&report)) {
            same.count += 1;
            return;
        }
        if !self.are_taken && self.printed.insert((report.rule, report.place())) {
            print(&report);
        }
        if self.waiting.len() < REPORTS_MAX {
            self.waiting.push_back(report);
        }
    }

    pub(super) fn take(&mut self) -> Vec<StrictReport> {
        self.are_taken = true;
        self.waiting.drain(..).collect()
    }
}

/// In one piece, so that the reports of several processes do not mix.
fn print(report: &StrictReport) {
    let text = format!("{report}\n");
    eprint!("{text}");
}
