//! Reads GOAL texts.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use crate::engine::Span;
use crate::workload::MESSAGE_MAX;
use crate::workload::goal::{Goal, Kind, Operation, Rank};

/// Why a text is no schedule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct GoalError {
    /// The line, counted from 1.
    pub line: usize,
    /// In words.
    pub fault: String,
}

/// Ranks at most: a host each.
const RANKS_MAX: u32 = 32_768;
/// In picoseconds.
const DAY: u64 = 86_400_000_000_000_000;

#[derive(Debug, Default)]
struct Reader {
    ranks: Option<u32>,
    /// The rank that is being read, and its labels.
    rank: Option<u32>,
    labels: BTreeMap<String, u32>,
    /// Which operation waits for which, by labels; for the end of it or not.
    waits: Vec<Wait>,
    has: Vec<bool>,
    operations: Vec<Operation>,
    /// The line of each.
    lines: Vec<usize>,
}

#[derive(Debug)]
struct Wait {
    line: usize,
    later: String,
    earlier: String,
    is_end: bool,
}

pub(super) fn parse(text: &str) -> Result<Goal, GoalError> {
    let mut reader = Reader::default();
    let (mut last, mut is_comment) = (1, false);
    for (line, content) in (1..).zip(text.lines()) {
        let words = words_of(content, &mut is_comment);
        if !content.trim().is_empty() {
            last = line;
        }
        if words.is_empty() {
            continue;
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        reader.line(line, &words)?;
    }
    let fault = |fault: String| GoalError { line: last, fault };
    if is_comment {
        return Err(fault("a comment has no end".to_owned()));
    }
    if let Some(rank) = reader.rank {
        return Err(fault(format!("rank {rank} has no closing brace")));
    }
    let Some(ranks) = reader.ranks else {
        return Err(fault("a schedule begins with num_ranks".to_owned()));
    };
    reader.look_for_circles()?;
    Ok(Goal {
        operations: reader.operations,
        ranks: vec![Rank::default(); ranks as usize],
        hosts: Vec::new(),
        ended: 0,
    })
}

/// The words of a line, signs for themselves; without comments, which may go on over lines.
fn words_of(line: &str, is_comment: &mut bool) -> Vec<String> {
    let mut kept = String::new();
    let mut rest = line;
    loop {
        if *is_comment {
            let Some((_, after)) = rest.split_once("*/") else {
                break;
            };
            (*is_comment, rest) = (false, after);
        }
        let block = rest.find("/*").unwrap_or(usize::MAX);
        let to_end = rest.find("//").unwrap_or(usize::MAX);
        if block < to_end {
            kept.push_str(&rest[..block]);
            (*is_comment, rest) = (true, &rest[block + 2..]);
            continue;
        }
        kept.push_str(&rest[..to_end.min(rest.len())]);
        break;
    }
    for sign in [':', '{', '}'] {
        kept = kept.replace(sign, &format!(" {sign} "));
    }
    kept.split_whitespace().map(str::to_owned).collect()
}

fn whole<T: core::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse()
        .map_err(|_| format!("{word:?} is no number that is possible here"))
}

impl Reader {
    fn line(&mut self, line: usize, words: &[&str]) -> Result<(), GoalError> {
        let read = match *words {
            ["num_ranks", count] if self.ranks.is_none() => self.set_ranks(count),
            ["rank", rank, "{"] if self.rank.is_none() => self.open(rank),
            ["}"] if self.rank.is_some() => return self.close(),
            [later, how @ ("requires" | "irequires"), earlier] => {
                self.waits.push(Wait {
                    line,
                    later: later.to_owned(),
                    earlier: earlier.to_owned(),
                    is_end: how == "requires",
                });
                Ok(())
            }
            [label, ":", ref rest @ ..] => self.operation(line, Some(label), rest),
            ["send" | "recv" | "calc", ..] => self.operation(line, None, words),
            _ => Err(format!(
                "{:?} is not num_ranks, rank, an operation, a dependency or a brace in its place",
                words.join(" ")
            )),
        };
        read.map_err(|fault| GoalError { line, fault })
    }

    fn set_ranks(&mut self, count: &str) -> Result<(), String> {
        let count = whole(count)?;
        if !(1..=RANKS_MAX).contains(&count) {
            return Err(format!("{count} ranks: 1 to {RANKS_MAX}"));
        }
        self.ranks = Some(count);
        self.has = vec![false; count as usize];
        Ok(())
    }

    fn open(&mut self, rank: &str) -> Result<(), String> {
        let rank = self.peer(rank)?;
        if core::mem::replace(&mut self.has[rank as usize], true) {
            return Err(format!("rank {rank} is there twice"));
        }
        self.rank = Some(rank);
        Ok(())
    }

    fn peer(&self, text: &str) -> Result<u32, String> {
        let ranks = self.ranks.ok_or("num_ranks must come before ranks")?;
        let rank = whole(text)?;
        if rank >= ranks {
            return Err(format!(
                "there is no rank {rank}: they are 0 to {}",
                ranks - 1
            ));
        }
        Ok(rank)
    }

    fn operation(
        &mut self,
        line: usize,
        label: Option<&str>,
        words: &[&str],
    ) -> Result<(), String> {
        let rank = self.rank.ok_or("an operation is of a rank")?;
        let kind = self.kind(words)?;
        let number = self.operations.len() as u32;
        if let Some(label) = label
            && self.labels.insert(label.to_owned(), number).is_some()
        {
            return Err(format!("{label} is there twice"));
        }
        self.lines.push(line);
        self.operations.push(Operation {
            rank,
            kind,
            waits: 0,
            after_start: Vec::new(),
            after_end: Vec::new(),
        });
        Ok(())
    }

    fn kind(&self, words: &[&str]) -> Result<Kind, String> {
        // Sizes are `8b` or `8 b`.
        let (what, size, rest) = match *words {
            [what, size, "b", ref rest @ ..] => (what, size, rest),
            [what, size, ref rest @ ..] => (what, size.strip_suffix('b').unwrap_or(size), rest),
            _ => return Err("an operation has a size".to_owned()),
        };
        let size: u64 = whole(size)?;
        let (mut tag, mut cpu) = (Some(0), 0);
        let (peer, mut more) = match (what, rest) {
            ("calc", rest) => (None, rest),
            ("send", &["to", to, ref rest @ ..]) => (Some(self.peer(to)?), rest),
            ("recv", &["from", "-1", ref rest @ ..]) => (None, rest),
            ("recv", &["from", from, ref rest @ ..]) => (Some(self.peer(from)?), rest),
            _ => return Err("calc, send ... to or recv ... from was expected".to_owned()),
        };
        while let &[name, value, ref rest @ ..] = more {
            match name {
                "tag" if value == "-1" && what == "recv" => tag = None,
                "tag" if what != "calc" => tag = Some(whole(value)?),
                "cpu" => cpu = whole(value)?,
                "nic" => drop(whole::<u8>(value)?),
                _ => return Err(format!("{name:?} is not tag, cpu or nic")),
            }
            more = rest;
        }
        if let [word] = more {
            return Err(format!("{word:?} has no number"));
        }
        if what != "calc" && size > MESSAGE_MAX {
            return Err(format!("{size} bytes: a message has at most 2 GiB"));
        }
        Ok(match (what, peer) {
            ("send", Some(to)) => Kind::Send {
                to,
                bytes: size as u32,
                tag: tag.unwrap_or(0),
            },
            ("recv", from) => Kind::Recv { from, tag },
            _ => {
                let ps = size.checked_mul(1000).filter(|&ps| ps <= DAY);
                let ps = ps.ok_or("a computation takes a day at most")?;
                let span = Span::from_ps(ps);
                Kind::Calc { span, cpu }
            }
        })
    }

    /// A rank has ended: its dependencies have operations now.
    fn close(&mut self) -> Result<(), GoalError> {
        for wait in core::mem::take(&mut self.waits) {
            let find = |label: &str| {
                let fault = format!("there is no {label} in this rank");
                let line = wait.line;
                self.labels
                    .get(label)
                    .copied()
                    .ok_or(GoalError { line, fault })
            };
            let (later, earlier) = (find(&wait.later)?, find(&wait.earlier)?);
            self.operations[later as usize].waits += 1;
            let earlier = &mut self.operations[earlier as usize];
            match wait.is_end {
                true => earlier.after_end.push(later),
                false => earlier.after_start.push(later),
            }
        }
        self.labels.clear();
        self.rank = None;
        Ok(())
    }

    /// Operations that wait for each other would wait for ever.
    fn look_for_circles(&self) -> Result<(), GoalError> {
        let mut waits: Vec<u32> = self.operations.iter().map(|o| o.waits).collect();
        let ready = waits.iter().enumerate().filter(|(_, waits)| **waits == 0);
        let mut ready: VecDeque<usize> = ready.map(|(number, _)| number).collect();
        while let Some(number) = ready.pop_front() {
            let operation = &self.operations[number];
            for &next in operation.after_start.iter().chain(&operation.after_end) {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    ready.push_back(next as usize);
                }
            }
        }
        match waits.iter().position(|&waits| waits > 0) {
            None => Ok(()),
            Some(number) => Err(GoalError {
                line: self.lines[number],
                fault: "this operation waits for itself, through others".to_owned(),
            }),
        }
    }
}
