//! The network adapter of a host, as the network sees it: frames go out through its port's queues,
//! and come in as fast as the host takes them. One that is too slow for what comes stops its switch.

use crate::engine::{Rate, Span};
use crate::fabric::{DropReason, Event, Fabric, Upcall};
use crate::frame::{Frame, FrameId, Queue};
use crate::qos::PRIORITIES;
use crate::topology::{HostId, PortId};

/// The receive side of adapters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdapterConfig {
    /// What it takes in a second; `None`: whatever comes.
    pub rx_rate: Option<Rate>,
    /// Bytes that may wait to be taken in.
    pub rx_buffer: u64,
    /// Bytes of a lossless class at which its sender is stopped.
    pub xoff: u64,
    /// Bytes down to which it stays stopped.
    pub xon: u64,
    /// What a frame takes in the adapter beside its time on the cable, when it is sent and again when it is received: DMA, doorbell,
    /// pipeline.
    pub latency: Span,
}

impl Default for AdapterConfig {
    /// As fast as the link; 1 MiB of buffer, of which half is headroom.
    fn default() -> Self {
        AdapterConfig {
            rx_rate: None,
            rx_buffer: 1 << 20,
            xoff: 512 << 10,
            xon: 256 << 10,
            latency: Span::ZERO,
        }
    }
}

/// The state of one.
#[derive(Clone, Debug)]
pub(crate) struct Adapter {
    pub(crate) port: PortId,
    /// Overrides what the configuration says.
    rx_rate: Option<Option<Rate>>,
    /// Frames that wait to be taken in, the first being taken in now.
    rx: Queue,
    rx_bytes: [u64; PRIORITIES],
    /// Bit n: the switch was told to stop class n.
    pub(crate) off: u8,
    /// The host has crashed: nothing is taken in.
    is_down: bool,
}

impl Adapter {
    pub(crate) fn new(port: PortId) -> Adapter {
        Adapter {
            port,
            rx_rate: None,
            rx: Queue::default(),
            rx_bytes: [0; PRIORITIES],
            off: 0,
            is_down: false,
        }
    }

    /// Bytes of a class that came and were not taken in yet.
    pub(crate) fn waits_to_be_taken_in(&self, priority: u8) -> u64 {
        self.rx_bytes[usize::from(priority)]
    }
}

impl Fabric {
    /// The port of a host.
    pub fn port_of(&self, host: HostId) -> PortId {
        self.adapters[host.index()].port
    }

    /// Changes how fast a host takes frames in, from the next frame on.
    pub fn set_rx_rate(&mut self, host: HostId, rate: Option<Rate>) {
        self.adapters[host.index()].rx_rate = Some(rate);
    }

    /// Hands a frame to a host's adapter. The adapter's queues have no end: the sender looks at
    /// [`Fabric::waiting`] and waits for [`Upcall::Room`].
    pub fn send(&mut self, host: HostId, frame: Frame) {
        let id = self.inject(frame);
        let port = self.adapters[host.index()].port;
        self.frames.get_mut(id).ingress = port;
        let now = self.queue.now();
        self.ports[port.index()].enqueue(&mut self.frames, id, frame.priority & 7, now);
        self.show_queue(port, frame.priority & 7);
        self.watch(port, frame.priority & 7);
        self.kick(port);
    }

    /// A frame has come to a host.
    #[inline]
    pub(crate) fn take_in(&mut self, host: HostId, id: FrameId) {
        let port = self.adapters[host.index()].port;
        let f = *self.frames.get(id);
        if f.dst != host && !self.groups.has(f.dst, host) {
            self.give_credit(port, id);
            return self.discard(port, id, DropReason::Stray);
        }
        let adapter = &mut self.adapters[host.index()];
        if adapter.is_down {
            self.give_credit(port, id);
            return self.discard(port, id, DropReason::HostDown);
        }
        let rate = adapter.rx_rate.unwrap_or(self.config.adapter.rx_rate);
        if rate.is_none() && adapter.rx.frames == 0 {
            self.give_credit(port, id);
            self.pending = Some(Upcall::Received(host, id));
            return;
        }
        let config = self.config.adapter;
        let is_lossless = self.is_lossless(&f);
        let port_has_pause = !self.has_credits();
        let adapter = &mut self.adapters[host.index()];
        let class = usize::from(f.priority);
        if adapter.rx.bytes + u64::from(f.len) > config.rx_buffer {
            self.give_credit(port, id);
            return self.discard(port, id, DropReason::Buffer);
        }
        if adapter.rx.frames == 0 {
            let done = rate.map_or(self.queue.now(), |r| {
                self.queue.now() + r.time_of(u64::from(f.len))
            });
            self.queue.push(done, Event::RxDone(host));
        }
        let adapter = &mut self.adapters[host.index()];
        adapter.rx.push(&mut self.frames, id);
        adapter.rx_bytes[class] += u64::from(f.len);
        let must_stop = is_lossless
            && adapter.rx_bytes[class] >= config.xoff
            && adapter.off & (1 << f.priority) == 0;
        if must_stop && port_has_pause {
            adapter.off |= 1 << f.priority;
            self.tell_pause(port, f.priority, true);
        }
    }

    /// The first of the waiting frames is in.
    pub(crate) fn on_rx_done(&mut self, host: HostId) {
        let now = self.queue.now();
        let adapter = &mut self.adapters[host.index()];
        let Some(id) = adapter.rx.pop(&self.frames) else {
            return;
        };
        let f = *self.frames.get(id);
        let class = usize::from(f.priority);
        adapter.rx_bytes[class] -= u64::from(f.len);
        let rate = adapter.rx_rate.unwrap_or(self.config.adapter.rx_rate);
        if let Some(next) = adapter.rx.head() {
            let len = u64::from(self.frames.get(next).len);
            let done = rate.map_or(now, |r| now + r.time_of(len));
            self.queue.push(done, Event::RxDone(host));
        }
        let port = adapter.port;
        let may_go_on = adapter.off & (1 << f.priority) != 0
            && adapter.rx_bytes[class] <= self.config.adapter.xon;
        if may_go_on {
            adapter.off &= !(1 << f.priority);
            self.tell_pause(port, f.priority, false);
        }
        self.give_credit(port, id);
        self.pending = Some(Upcall::Received(host, id));
    }

    /// Takes the adapter of a host out of service, with all frames that wait in it to be taken in.
    pub(crate) fn set_host_down(&mut self, host: HostId, is_down: bool) {
        let adapter = &mut self.adapters[host.index()];
        adapter.is_down = is_down;
        if !is_down {
            return;
        }
        (adapter.off, adapter.rx_bytes) = (0, [0; PRIORITIES]);
        let (port, mut waiting) = (adapter.port, core::mem::take(&mut adapter.rx));
        while let Some(id) = waiting.pop(&self.frames) {
            self.give_credit(port, id);
            self.discard(port, id, DropReason::HostDown);
        }
    }

    /// True while a fault has the host crashed.
    #[inline]
    pub fn is_host_down(&self, host: HostId) -> bool {
        self.adapters[host.index()].is_down
    }
}
