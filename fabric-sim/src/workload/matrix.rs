//! Connection matrices as htsim reads them (`.cm`): flows with a size, which begin at a time or when a trigger fires.
//!
//! ```text
//! Nodes 16
//! Connections 2
//! Triggers 1
//! 0->5 id 1 start 0 size 2000000 send_done_trigger 1
//! 5->7 id 2 trigger 1 size 4096
//! trigger id 1 oneshot
//! ```
//!
//! Node *n* is host *n*, or of those that [`Matrix::on`] gives; times are picoseconds. A trigger is `oneshot` (all its flows begin when it is fired first),
//! `multishot` (a flow more begins each time), or `barrier` with a `count` (all begin at that firing). Failures of links, which
//! the format can have, are faults of the scenario here.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::engine::Time;
use crate::topology::HostId;
use crate::workload::{Event, MESSAGE_MAX, Todo, Workload};

/// Why a text is no matrix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct MatrixError {
    /// The line, counted from 1.
    pub line: usize,
    /// In words.
    pub fault: String,
}

/// A flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Connection {
    from: HostId,
    to: HostId,
    bytes: u32,
    begins: Begins,
    on_sent: Option<u32>,
    on_arrived: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begins {
    At(Time),
    Trigger(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Oneshot,
    Multishot,
    Barrier(u64),
}

#[derive(Clone, Debug)]
struct Trigger {
    kind: Kind,
    flows: Vec<usize>,
    fired: u64,
    begun: usize,
}

/// A matrix, and how far it has come.
#[derive(Clone, Debug)]
pub struct Matrix {
    nodes: u32,
    connections: Vec<Connection>,
    triggers: BTreeMap<u32, Trigger>,
    ended: usize,
}

impl Matrix {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`MatrixError`] says which line, and what was expected there.
    pub fn parse(text: &str) -> Result<Matrix, MatrixError> {
        let mut reader = Reader::default();
        let mut last = 1;
        for (line, content) in (1..).zip(text.lines()) {
            let words: Vec<&str> = content.split_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            last = line;
            let read = reader.line(line, &words);
            read.map_err(|fault| MatrixError { line, fault })?;
        }
        reader.finish(last)
    }

    /// Hosts that it is for.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Has its nodes be these hosts, in their order; without it, node *n* is host *n*.
    ///
    /// # Panics
    /// If there are fewer hosts than nodes.
    pub fn on(mut self, hosts: &[HostId]) -> Matrix {
        for flow in &mut self.connections {
            flow.from = hosts[flow.from.index()];
            flow.to = hosts[flow.to.index()];
        }
        self
    }

    /// Flows.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn begin(&self, place: usize, todo: &mut Todo) {
        let flow = &self.connections[place];
        todo.send(flow.from, flow.to, flow.bytes, place as u64);
    }

    fn fire(&mut self, id: Option<u32>, todo: &mut Todo) {
        let Some(trigger) = id.and_then(|id| self.triggers.get_mut(&id)) else {
            return;
        };
        trigger.fired += 1;
        let all = trigger.flows.len();
        let until = match trigger.kind {
            Kind::Oneshot => all,
            Kind::Multishot => all.min(trigger.begun + 1),
            Kind::Barrier(count) if trigger.fired >= count => all,
            Kind::Barrier(_) => return,
        };
        let flows = trigger.flows[trigger.begun..until].to_vec();
        trigger.begun = until;
        for flow in flows {
            self.begin(flow, todo);
        }
    }
}

impl Workload for Matrix {
    fn start(&mut self, todo: &mut Todo) {
        for (place, flow) in self.connections.iter().enumerate() {
            if let Begins::At(at) = flow.begins {
                todo.wait(flow.from, at.since(Time::ZERO), place as u64);
            }
        }
    }

    fn on_event(&mut self, event: Event, todo: &mut Todo) {
        match event {
            Event::Due(tag) => self.begin(tag as usize, todo),
            Event::Sent(tag) => {
                self.ended += 1;
                self.fire(self.connections[tag as usize].on_sent, todo);
            }
            Event::Arrived(tag) => self.fire(self.connections[tag as usize].on_arrived, todo),
        }
    }

    fn is_complete(&self) -> bool {
        self.ended == self.connections.len()
    }

    fn waits_for(&self) -> String {
        let (ended, all) = (self.ended, self.connections.len());
        format!("{ended} of {all} connections have ended")
    }

    fn keeps_messages(&self) -> bool {
        true
    }
}

/// What was read so far.
#[derive(Debug, Default)]
struct Reader {
    nodes: Option<u32>,
    connections: Vec<Connection>,
    /// The line of each connection.
    lines: Vec<usize>,
    triggers: BTreeMap<u32, Trigger>,
    ids: BTreeSet<u32>,
    /// Numbers that the head promises.
    promised: [Option<usize>; 2],
}

/// The number that follows a word.
fn number<T: core::str::FromStr>(
    words: &mut core::slice::Iter<'_, &str>,
    after: &str,
) -> Result<T, String> {
    let word = words
        .next()
        .ok_or(format!("a number must follow {after}"))?;
    let read = word.parse();
    read.map_err(|_| format!("{word:?}, after {after}, is no number that is possible there"))
}

impl Reader {
    fn line(&mut self, line: usize, words: &[&str]) -> Result<(), String> {
        let mut rest = words[1..].iter();
        match words[0] {
            "Nodes" => self.nodes = Some(number(&mut rest, "Nodes")?),
            "Connections" => self.promised[0] = Some(number(&mut rest, "Connections")?),
            "Triggers" => self.promised[1] = Some(number(&mut rest, "Triggers")?),
            "Failures" => match number::<u32>(&mut rest, "Failures")? {
                0 => {}
                _ => return Err("failures are not read: say them as faults of the scenario".into()),
            },
            "trigger" => self.trigger(rest)?,
            word => match word.split_once("->") {
                Some((from, to)) => {
                    self.connection(from, to, rest)?;
                    self.lines.push(line);
                }
                None => return Err(format!("{word:?} is nothing that a matrix has")),
            },
        }
        Ok(())
    }

    fn node(&self, text: &str) -> Result<HostId, String> {
        let nodes = self.nodes.ok_or("Nodes must come before connections")?;
        match text.parse() {
            Ok(node) if node < nodes => Ok(HostId(node)),
            _ => Err(format!(
                "{text:?} is no node: they are 0 to {}",
                nodes.saturating_sub(1)
            )),
        }
    }

    fn connection(
        &mut self,
        from: &str,
        to: &str,
        mut words: core::slice::Iter<'_, &str>,
    ) -> Result<(), String> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        if from == to {
            return Err("a connection leads to another node".into());
        }
        let (mut start, mut trigger, mut bytes) = (None, None, None);
        let (mut on_sent, mut on_arrived) = (None, None);
        while let Some(&word) = words.next() {
            match word {
                // Some writers have a fraction of a picosecond.
                "start" => start = Some(number::<f64>(&mut words, word)?),
                "size" => bytes = Some(number::<u64>(&mut words, word)?),
                "trigger" => trigger = Some(number(&mut words, word)?),
                "send_done_trigger" => on_sent = Some(number(&mut words, word)?),
                "recv_done_trigger" => on_arrived = Some(number(&mut words, word)?),
                "id" => {
                    let id = number(&mut words, word)?;
                    if id == 0 || !self.ids.insert(id) {
                        return Err(format!("id {id}: ids are not 0, and each is there once"));
                    }
                }
                // Says in which order a host serves its flows, which the transport does by turns.
                "prio" => drop(number::<u32>(&mut words, word)?),
                _ => return Err(format!("{word:?} is nothing that a connection has")),
            }
        }
        let begins = match (start, trigger) {
            (Some(ps), None) if (0.0..1e19).contains(&ps) => Begins::At(Time::from_ps(ps as u64)),
            (None, Some(id)) => Begins::Trigger(id),
            (Some(_), None) => return Err("start is a time in picoseconds".into()),
            _ => return Err("a connection has a start or a trigger, and not both".into()),
        };
        let bytes = bytes.filter(|n| (1..=MESSAGE_MAX).contains(n));
        let bytes = bytes.ok_or("a connection has a size of 1 byte to 2 GiB")?;
        self.connections.push(Connection {
            from,
            to,
            bytes: bytes as u32,
            begins,
            on_sent,
            on_arrived,
        });
        Ok(())
    }

    fn trigger(&mut self, mut words: core::slice::Iter<'_, &str>) -> Result<(), String> {
        let (mut id, mut count, mut kind) = (None, None, None);
        while let Some(&word) = words.next() {
            match word {
                "id" => id = Some(number::<u32>(&mut words, word)?),
                "count" => count = Some(number::<u64>(&mut words, word)?),
                "oneshot" => kind = Some(Kind::Oneshot),
                "multishot" => kind = Some(Kind::Multishot),
                "barrier" => kind = Some(Kind::Barrier(0)),
                _ => return Err(format!("{word:?} is nothing that a trigger has")),
            }
        }
        let id = id
            .filter(|&id| id != 0)
            .ok_or("a trigger has an id that is not 0")?;
        let kind = match (kind, count) {
            (Some(Kind::Barrier(_)), Some(count)) if count > 0 => Kind::Barrier(count),
            (Some(Kind::Barrier(_)), _) => return Err("a barrier has a count above 0".into()),
            (Some(kind), _) => kind,
            (None, _) => return Err("a trigger is oneshot, multishot or barrier".into()),
        };
        let trigger = Trigger {
            kind,
            flows: Vec::new(),
            fired: 0,
            begun: 0,
        };
        match self.triggers.insert(id, trigger) {
            Some(_) => Err(format!("trigger {id} is there twice")),
            None => Ok(()),
        }
    }

    fn finish(mut self, last: usize) -> Result<Matrix, MatrixError> {
        let fault = |line, fault: String| Err(MatrixError { line, fault });
        let Some(nodes) = self.nodes else {
            return fault(1, "a matrix begins with Nodes".into());
        };
        for (what, count, promised) in [
            ("connections", self.connections.len(), self.promised[0]),
            ("triggers", self.triggers.len(), self.promised[1]),
        ] {
            if let Some(promised) = promised.filter(|&promised| promised != count) {
                return fault(
                    last,
                    format!("{count} {what}, but the head says {promised}"),
                );
            }
        }
        for (place, flow) in self.connections.iter().enumerate() {
            let begins = match flow.begins {
                Begins::Trigger(id) => Some(id),
                Begins::At(_) => None,
            };
            let used = [begins, flow.on_sent, flow.on_arrived]
                .into_iter()
                .flatten();
            for id in used {
                if !self.triggers.contains_key(&id) {
                    return fault(self.lines[place], format!("there is no trigger {id}"));
                }
            }
            if let Some(trigger) = begins.and_then(|id| self.triggers.get_mut(&id)) {
                trigger.flows.push(place);
            }
        }
        Ok(Matrix {
            nodes,
            connections: self.connections,
            triggers: self.triggers,
            ended: 0,
        })
    }
}
