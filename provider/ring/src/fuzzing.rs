//! For fuzz targets, and for the tests here: a script of what both sides do, and of what is done to the memory beside them.

use std::collections::VecDeque;

use crate::consumer::{Consumer, Pop};
use crate::layout::{Geometry, HEAD_AT, Mark, Place, room_for};
use crate::memory::Memory;
use crate::producer::{Producer, Push};
use crate::sync::Ordering;
use crate::window::Window;

/// Small rings, in which chunks soon follow each other.
const GEOMETRIES: [Geometry; 2] = [
    Geometry {
        chunk: 512,
        chunks: 4,
        tell: 128,
    },
    Geometry {
        chunk: 192,
        chunks: 2,
        tell: 64,
    },
];

/// What bytes in the caller's memory are that nothing was copied to.
const UNTOUCHED: u8 = 0xa5;

/// Runs the bytes as a script. A ring that nothing was done to delivers what was pushed, and says of each side what is so;
/// one with damage does anything, but does not panic, and writes nowhere else. Panics on a finding.
pub fn script(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let mut run = Run::new(GEOMETRIES[usize::from(first) % GEOMETRIES.len()]);
    let mut script = Script(rest);
    while !script.0.is_empty() {
        run.step(&mut script);
    }
    run.drain();
}

/// Makes a record in a window that is just long enough, or longer.
fn make(producer: &mut Producer, mark: Mark, bytes: &[u8]) -> Push {
    let room = room_for(bytes.len());
    let mut window = producer.window();
    if !producer.lend(&mut window, room, room + bytes.len()) {
        return match producer.is_closed() {
            true => Push::Closed,
            false => Push::Full,
        };
    }
    let record = Window::BEFORE..Window::BEFORE + bytes.len();
    window.part_mut(record).copy_from_slice(bytes);
    producer.end_loan(&mut window);
    producer.publish(mark, bytes.len());
    Push::Done
}

/// What is left of the bytes. At the end there are zeros.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        byte
    }

    fn number(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }
}

struct Run {
    geometry: Geometry,
    /// Maps the memory once more.
    again: Box<dyn Fn() -> Memory>,
    /// None: it was dropped.
    producer: Option<Producer>,
    consumer: Consumer,
    /// The memory, beside both sides.
    beside: Memory,
    /// What was pushed and not taken.
    queue: VecDeque<(Mark, Vec<u8>)>,
    pushes: u16,
    /// The consumer said that it sleeps, and was not woken.
    sleeps: bool,
    /// The consumer has closed the ring.
    is_closed: bool,
    /// It has found nonsense.
    is_broken: bool,
    /// Something was done that no side does: nothing of the above need be so.
    is_damaged: bool,
}

impl Run {
    fn new(geometry: Geometry) -> Run {
        let shared = Memory::shared(geometry).expect("memory");
        let again = move || shared().expect("one more mapping");
        Run {
            geometry,
            producer: Some(Producer::on(again(), geometry)),
            consumer: Consumer::on(again(), geometry),
            beside: again(),
            again: Box::new(again),
            queue: VecDeque::new(),
            pushes: 0,
            sleeps: false,
            is_closed: false,
            is_broken: false,
            is_damaged: false,
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 16 {
            0..3 => {
                let len = script.number();
                self.push(len, false);
            }
            3 => {
                let len = script.number();
                self.push(len, true);
            }
            4..7 => self.pop(self.geometry.chunk),
            7 => self.pop_in_place(),
            8 => self.release(),
            9 => self.doze(),
            10 => {
                self.consumer.rouse();
                self.sleeps = false;
            }
            11 => self.must_wake(),
            12 => self.damage(script),
            13 => {
                let (left, offset) = (script.number() as u32, script.number());
                let head = Place { left, offset };
                self.beside
                    .word(HEAD_AT)
                    .store(head.pack(), Ordering::Release);
                self.is_damaged = true;
            }
            14 => {
                let len = script.number() % self.geometry.chunk;
                // Too short for a record that is there: that breaks the ring.
                self.is_damaged |= self.queue.front().is_some_and(|(_, b)| b.len() > len);
                self.pop(len);
            }
            _ => self.end(script.byte()),
        }
    }

    /// Writes a record, or makes it in a window.
    fn push(&mut self, len: usize, in_place: bool) {
        let Some(producer) = &mut self.producer else {
            return;
        };
        self.pushes = self.pushes.wrapping_add(1);
        let number = self.pushes;
        let mark = Mark {
            kind: number as u8 % Mark::KINDS,
            tag: number,
            size: !number,
        };
        // The longest fills a chunk.
        let len = len % (self.geometry.chunk - 64 - 8 + 1);
        let bytes: Vec<u8> = (0..len).map(|at| (at as u16 ^ number) as u8).collect();
        let is_drained = producer.is_drained();
        let push = if in_place {
            make(producer, mark, &bytes)
        } else {
            producer.push(mark, &bytes)
        };
        match push {
            Push::Done => self.queue.push_back((mark, bytes)),
            _ if self.is_damaged => {}
            Push::Full => assert!(!is_drained, "no room in an empty ring"),
            Push::Closed => assert!(self.is_closed, "no side has closed the ring"),
        }
    }

    fn pop(&mut self, len: usize) {
        let mut out = vec![UNTOUCHED; len];
        let pop = self.consumer.pop(&mut out);
        let touched = match pop {
            Pop::Record { len, .. } => len,
            _ => 0,
        };
        let is_untouched = out[touched..].iter().all(|&byte| byte == UNTOUCHED);
        assert!(is_untouched, "behind the record");
        assert!(!self.is_broken || pop == Pop::Broken, "broken for good");
        self.is_broken |= pop == Pop::Broken;
        if self.is_damaged {
            self.queue.pop_front();
            return;
        }
        let expected = match self.queue.pop_front() {
            Some((mark, bytes)) => {
                assert_eq!(out[..touched], bytes);
                let len = bytes.len();
                Pop::Record { len, mark }
            }
            None if self.producer.is_some() => Pop::Empty,
            None => Pop::Closed,
        };
        assert_eq!(pop, expected);
    }

    /// Reads a record where it lies.
    fn pop_in_place(&mut self) {
        let pop = self.consumer.peek();
        self.is_broken |= pop == Pop::Broken;
        let Pop::Record { len, mark } = pop else {
            let is_over = self.queue.is_empty() && matches!(pop, Pop::Empty | Pop::Closed);
            assert!(self.is_damaged || is_over);
            return;
        };
        let mut bytes = vec![UNTOUCHED; len];
        let words = self.consumer.words().iter();
        let words = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let words: Vec<u8> = words.collect();
        assert_eq!(words.len(), len / 4 * 4);
        let first = words.len().min(len / 2);
        bytes[..first].copy_from_slice(&words[..first]);
        self.consumer.copy(first, &mut bytes[first..]);
        self.consumer.advance();
        let expected = self.queue.pop_front();
        assert!(self.is_damaged || expected == Some((mark, bytes)));
    }

    fn release(&mut self) {
        self.consumer.release();
        if let Some(producer) = &self.producer
            && !self.is_damaged
        {
            assert_eq!(producer.is_drained(), self.queue.is_empty());
        }
    }

    fn doze(&mut self) {
        self.sleeps = self.consumer.doze();
        if !self.is_damaged {
            let is_quiet = self.queue.is_empty() && self.producer.is_some();
            assert_eq!(self.sleeps, is_quiet);
        }
    }

    fn must_wake(&mut self) {
        if let Some(producer) = &self.producer {
            let must_wake = producer.must_wake();
            assert!(self.is_damaged || must_wake == self.sleeps);
            self.sleeps = false;
        }
    }

    /// Writes some bytes anywhere.
    fn damage(&mut self, script: &mut Script<'_>) {
        let (place, len) = (script.number(), script.byte() % 9);
        let bytes: Vec<u8> = (0..len).map(|_| script.byte()).collect();
        let places = self.geometry.len() - bytes.len() + 1;
        self.beside.write(place % places, &bytes);
        self.is_damaged = true;
    }

    /// One of the sides goes, or another consumer comes.
    fn end(&mut self, which: u8) {
        match which % 3 {
            0 => self.producer = None,
            1 => {
                self.consumer.close();
                self.is_closed = true;
                let is_open = |producer: &Producer| !producer.is_closed();
                assert!(!self.producer.as_ref().is_some_and(is_open));
            }
            _ => {
                self.consumer = Consumer::on((self.again)(), self.geometry);
                self.is_broken = false;
                self.is_damaged = true;
            }
        }
    }

    /// What was pushed is there in the end.
    fn drain(&mut self) {
        while !self.is_damaged && !self.queue.is_empty() {
            self.pop(self.geometry.chunk);
        }
        if !self.is_damaged {
            self.pop(0);
            self.release();
        }
    }
}
