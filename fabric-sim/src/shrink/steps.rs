//! The steps of shrinking: each tries to leave something out.

use toml::{Table, Value};

use crate::check::Check;
use crate::engine::{Span, Time};
use crate::scenario::{bytes, span_of, span_text};
use crate::shrink::Search;

/// Frames that a fault hits, at most, for them to be told one by one.
const HITS_MAX: u64 = 2_000;

/// Times that a window or a size is halved.
const HALVINGS: u32 = 12;

fn list(table: &Table, key: &str) -> Vec<Value> {
    let list = table.get(key).and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

fn put(table: &mut Table, key: &str, list: Vec<Value>) {
    if list.is_empty() {
        table.remove(key)
    } else {
        table.insert(key.to_owned(), Value::Array(list))
    };
}

fn field<'a>(table: &'a mut Table, key: &str, place: usize) -> Option<&'a mut Table> {
    table
        .get_mut(key)?
        .as_array_mut()?
        .get_mut(place)?
        .as_table_mut()
}

/// The last number of a fault that hits certain frames.
pub(super) fn last_hit(table: &Table, place: usize) -> Option<i64> {
    let fault = table.get("fault")?.as_array()?.get(place)?;
    fault.get("nth")?.as_array()?.last()?.as_integer()
}

/// Makes it hit an earlier frame; false if that is one of its others, or before one.
pub(super) fn move_last_hit(table: &mut Table, place: usize, number: i64) -> bool {
    let numbers = field(table, "fault", place)
        .and_then(|fault| fault.get_mut("nth"))
        .and_then(Value::as_array_mut);
    let Some(numbers) = numbers else {
        return false;
    };
    numbers.pop();
    let before = numbers.last().and_then(Value::as_integer);
    numbers.push(Value::Integer(number));
    before.is_none_or(|before| before < number)
}

impl Search<'_> {
    /// A check that found something has no need of what comes after. What was expected of the end has.
    pub(super) fn cut_the_end(&mut self) {
        let at_once = [
            Check::Lossless,
            Check::Books,
            Check::Delivery,
            Check::Atomics,
            Check::Credits,
        ];
        if !at_once.iter().any(|check| check.name() == self.best.class) {
            return;
        }
        for _ in 0..HALVINGS {
            let end = self.best.report.end.since(Time::ZERO);
            if !self.cut_to(Span::from_ps(end.ps() / 2)) {
                return;
            }
        }
    }

    fn cut_to(&mut self, end: Span) -> bool {
        let mut table = self.table();
        if let Some(Value::Table(sim)) = table.get_mut("sim") {
            sim.insert("until".to_owned(), Value::String(span_text(end)));
        }
        end > Span::ZERO && self.accept(table)
    }

    /// Delta debugging over a list of the file.
    pub(super) fn fewer(&mut self, key: &'static str) {
        let items = list(&self.table(), key);
        self.delta(items, |table, items| put(table, key, items));
    }

    /// Leaves parts of a list out, smaller and smaller ones.
    fn delta(&mut self, items: Vec<Value>, write: impl Fn(&mut Table, Vec<Value>)) {
        let mut items = items;
        if items.is_empty() {
            return;
        }
        let mut without_all = self.table();
        write(&mut without_all, Vec::new());
        if self.accept(without_all) {
            return;
        }
        let mut size = items.len().div_ceil(2);
        loop {
            let mut start = 0;
            let mut has_shrunk = false;
            while start < items.len() && items.len() > 1 {
                let end = (start + size).min(items.len());
                let mut rest = items.clone();
                rest.drain(start..end);
                let mut table = self.table();
                write(&mut table, rest.clone());
                if !rest.is_empty() && self.accept_moved(table) {
                    items = rest;
                    has_shrunk = true;
                } else {
                    start = end;
                }
            }
            if size == 1 && !has_shrunk {
                return;
            }
            size = size.div_ceil(2).min(items.len()).max(1);
            if items.len() == 1 || !(self.go_on)() {
                return;
            }
        }
    }

    /// Says of each fault which frames it hits, and leaves out those that nothing depends on.
    pub(super) fn fewer_hits(&mut self) {
        for place in 0..list(&self.table(), "fault").len() {
            self.tell_hits(place);
            let mut table = self.table();
            let Some(fault) = field(&mut table, "fault", place) else {
                continue;
            };
            if let Some(Value::Array(numbers)) = fault.get("nth").cloned() {
                self.delta(numbers, |table, numbers| {
                    if let Some(fault) = field(table, "fault", place) {
                        fault.insert("nth".to_owned(), Value::Array(numbers));
                    }
                });
            }
        }
    }

    fn tell_hits(&mut self, place: usize) {
        let mut table = self.table();
        let Some(report) = self.best.report.faults.get(place).cloned() else {
            return;
        };
        let Some(fault) = field(&mut table, "fault", place) else {
            return;
        };
        let is_random = ["p", "every", "enter"]
            .iter()
            .any(|key| fault.contains_key(*key));
        let is_burst = fault.get("kind").and_then(Value::as_str) == Some("burst-loss");
        if !(is_random || is_burst) || report.hits > HITS_MAX || report.hits == 0 {
            return;
        }
        for key in ["p", "every", "enter", "leave", "loss"] {
            fault.remove(key);
        }
        if is_burst {
            fault.insert("kind".to_owned(), Value::String("loss".to_owned()));
        }
        let numbers = report.numbers.iter().map(|&n| Value::Integer(n as i64));
        fault.insert("nth".to_owned(), Value::Array(numbers.collect()));
        // The numbers say it all.
        let mut without_window = table.clone();
        if let Some(fault) = field(&mut without_window, "fault", place) {
            fault.remove("from");
            fault.remove("to");
        }
        if !self.accept(without_window) {
            self.accept(table);
        }
    }

    /// A flow of several senders becomes several flows.
    pub(super) fn single_flows(&mut self) {
        let hosts = self.hosts();
        let mut singles = Vec::new();
        for flow in list(&self.table(), "flow") {
            let Value::Table(flow) = flow else {
                continue;
            };
            let to = flow.get("to").cloned();
            let senders = match flow.get("from") {
                Some(Value::String(all)) if all == "all" => {
                    let hosts = hosts.iter().cloned().map(Value::String);
                    hosts.filter(|host| Some(host) != to.as_ref()).collect()
                }
                Some(Value::Array(some)) => some.clone(),
                Some(one) => vec![one.clone()],
                None => Vec::new(),
            };
            for from in senders {
                let mut single = flow.clone();
                single.insert("from".to_owned(), from);
                singles.push(Value::Table(single));
            }
        }
        let mut table = self.table();
        put(&mut table, "flow", singles);
        self.accept(table);
    }

    fn hosts(&self) -> Vec<String> {
        let built = self.best.scenario.build(self.best.scenario.seed());
        let sim = built.ok();
        let names = sim.iter().flat_map(|sim| {
            let topology = sim.fabric().topology();
            topology.hosts().map(|host| topology.name(host).to_owned())
        });
        names.collect()
    }

    /// Moves the ends of each window towards each other.
    pub(super) fn shorter_windows(&mut self) {
        for place in 0..list(&self.table(), "fault").len() {
            let mut part = 2;
            for _ in 0..HALVINGS {
                let narrowed =
                    self.move_end(place, "to", part) | self.move_end(place, "from", part);
                if !narrowed {
                    part *= 2;
                }
                if part > 8 {
                    break;
                }
            }
        }
    }

    /// Takes a part of the window away, at one of its ends.
    fn move_end(&mut self, place: usize, key: &str, part: u64) -> bool {
        let end = self.best.report.end.since(Time::ZERO);
        let mut table = self.table();
        let Some(fault) = field(&mut table, "fault", place) else {
            return false;
        };
        if fault.contains_key("nth") {
            return false;
        }
        let from = span_of(fault, "from").unwrap_or_default();
        let to = span_of(fault, "to").unwrap_or(end);
        let less = Span::from_ps((to - from).ps() / part);
        // To the nanosecond: what is shorter says nothing.
        if less < Span::from_ns(1) {
            return false;
        }
        let round = |span: Span| Span::from_ns(span.ps() / 1_000);
        let moved = match key {
            "to" => round(to - less),
            _ => round(from + less),
        };
        fault.insert(key.to_owned(), Value::String(span_text(moved)));
        self.accept(table)
    }

    /// Fewer and smaller messages, fewer at a time, all from the start.
    pub(super) fn smaller_flows(&mut self) {
        for place in 0..list(&self.table(), "flow").len() {
            for key in ["count", "size", "depth"] {
                for _ in 0..HALVINGS * 2 {
                    if !self.halve(place, key) {
                        break;
                    }
                }
            }
            let mut table = self.table();
            if let Some(flow) = field(&mut table, "flow", place)
                && flow.remove("start").is_some()
            {
                self.accept(table);
            }
        }
    }

    fn halve(&mut self, place: usize, key: &str) -> bool {
        let mut table = self.table();
        let Some(flow) = field(&mut table, "flow", place) else {
            return false;
        };
        let half = match flow.get(key) {
            Some(Value::Integer(n)) => *n / 2,
            Some(Value::String(text)) => bytes(text).map_or(0, |n| n as i64 / 2),
            _ => 0,
        };
        flow.insert(key.to_owned(), Value::Integer(half));
        half > 0 && self.accept_moved(table)
    }
}
