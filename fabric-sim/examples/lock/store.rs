//! A counter on two replicas, under a lock that is a word of memory. The replicas do nothing: clients lock by
//! compare-and-swap, READ the record from one replica, WRITE the next one to both, and unlock.
//!
//! Nothing in here knows whether it runs over real sockets or in a simulation.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use fabric_sim::program::{ask, now, sleep, tell};
use urxe::{Access, ConnectOptions, Context, Cq, Error, Mr, Pd, Qp, Rkey, SendWr};

/// What a replica holds: the lock, and behind it the record, which is the count and seven copies of it.
const LOCK: usize = 0;
const RECORD: usize = 8;
const RECORD_LEN: usize = 64;
const LEN: usize = RECORD + RECORD_LEN;

/// What a client waits for before it unlocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Care {
    /// Both replicas have the record.
    ForAll,
    /// One of them has it: the other one will have it soon. (It is wrong: the next holder of the lock may ask the
    /// other.)
    ForOne,
}

/// The participants.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// Tells runs of one process apart.
    pub(crate) name: String,
    pub(crate) replicas: Vec<IpAddr>,
    pub(crate) clients: Vec<IpAddr>,
    /// How often each client counts.
    pub(crate) rounds: u64,
    pub(crate) care: Care,
}

/// A client counted: from when to when, and what it made of the count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) count: u64,
}

/// A replica, as a client sees it.
struct Replica {
    qp: Qp,
    addr: u64,
    rkey: Rkey,
}

struct Client {
    number: usize,
    cq: Cq,
    memory: Mr,
    replicas: Vec<Replica>,
    next_wr: u64,
    /// Requests that are done and were not waited for.
    done: BTreeSet<u64>,
}

impl Store {
    fn key(&self, what: &str) -> String {
        format!("{} {what}", self.name)
    }

    /// Runs a replica until all clients are done; returns its count.
    pub(crate) fn replica(&self, number: usize) -> Result<u64, Error> {
        let context = Context::open(self.replicas[number])?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let memory = pd.reg_owned(vec![0; LEN], access)?;
        let mut qps = Vec::new();
        for client in 0..self.clients.len() {
            let qp = pd.qp(&cq).create()?;
            let (addr, rkey) = (memory.addr(), memory.rkey().0);
            let word = format!("{} {addr} {rkey}", qp.endpoint());
            tell(&self.key(&format!("replica {number} for {client}")), word);
            let peer = ask(&self.key(&format!("client {client} for {number}")));
            qp.connect(&peer.parse()?, &ConnectOptions::default())?;
            tell(&self.key(&format!("replica {number} has {client}")), "");
            qps.push(qp);
        }
        for client in 0..self.clients.len() {
            ask(&self.key(&format!("client {client} is done")));
        }
        let mut count = [0; 8];
        memory.read(RECORD, &mut count);
        Ok(u64::from_ne_bytes(count))
    }

    /// Runs a client; returns what it counted.
    pub(crate) fn client(&self, number: usize) -> Result<Vec<Counted>, Error> {
        let mut client = self.connect(number)?;
        let mut counted = Vec::new();
        for round in 0..self.rounds {
            let from = now();
            client.lock()?;
            // Each replica will do, as both have all that was written.
            let count = client.read((round as usize + number) % self.replicas.len())? + 1;
            client.write(count, self.care)?;
            client.unlock()?;
            let to = now();
            counted.push(Counted { from, to, count });
        }
        tell(&self.key(&format!("client {number} is done")), "");
        Ok(counted)
    }

    fn connect(&self, number: usize) -> Result<Client, Error> {
        let context = Context::open(self.clients[number])?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(64)?);
        let memory = pd.reg_owned(vec![0; LEN], Access::LOCAL_WRITE)?;
        let replicas = (0..self.replicas.len()).map(|replica| self.meet(&pd, &cq, number, replica));
        Ok(Client {
            number,
            replicas: replicas.collect::<Result<_, Error>>()?,
            cq,
            memory,
            next_wr: 0,
            done: BTreeSet::new(),
        })
    }

    fn meet(&self, pd: &Pd, cq: &Cq, number: usize, replica: usize) -> Result<Replica, Error> {
        let qp = pd.qp(cq).create()?;
        let mine = self.key(&format!("client {number} for {replica}"));
        tell(&mine, qp.endpoint());
        let word = ask(&self.key(&format!("replica {replica} for {number}")));
        let mut fields = word.split(' ');
        let mut field = || fields.next().expect("three fields");
        qp.connect(&field().parse()?, &ConnectOptions::default())?;
        let addr = field().parse().expect("an address");
        let rkey = Rkey(field().parse().expect("a key"));
        ask(&self.key(&format!("replica {replica} has {number}")));
        Ok(Replica { qp, addr, rkey })
    }
}

impl Client {
    fn wr_id(&mut self) -> u64 {
        self.next_wr += 1;
        self.next_wr
    }

    /// Waits until a request is done.
    fn wait(&mut self, wr_id: u64) -> Result<(), Error> {
        while !self.done.remove(&wr_id) {
            let wc = self.cq.poll_one()?;
            wc.ok()?;
            self.done.insert(wc.wr_id);
        }
        Ok(())
    }

    /// Changes the lock from one value to another; false if it is neither.
    fn swap(&mut self, from: u64, to: u64) -> Result<bool, Error> {
        let wr_id = self.wr_id();
        let first = &self.replicas[0];
        let sges = [self.memory.sge(LOCK..RECORD)];
        let wr = SendWr::atomic_cmp_swp(wr_id, &sges, first.addr, first.rkey, from, to);
        first.qp.post_send(&wr.signaled())?;
        self.wait(wr_id)?;
        let mut was = [0; 8];
        self.memory.read(LOCK, &mut was);
        Ok(u64::from_ne_bytes(was) == from)
    }

    fn lock(&mut self) -> Result<(), Error> {
        let me = self.number as u64 + 1;
        while !self.swap(0, me)? {
            sleep(Duration::from_micros(5));
        }
        Ok(())
    }

    fn unlock(&mut self) -> Result<(), Error> {
        let was_mine = self.swap(self.number as u64 + 1, 0)?;
        assert!(was_mine, "somebody else had the lock, too");
        Ok(())
    }

    fn read(&mut self, replica: usize) -> Result<u64, Error> {
        let wr_id = self.wr_id();
        let from = &self.replicas[replica];
        let sges = [self.memory.sge(RECORD..LEN)];
        let wr = SendWr::rdma_read(wr_id, &sges, from.addr + RECORD as u64, from.rkey);
        from.qp.post_send(&wr.signaled())?;
        self.wait(wr_id)?;
        let mut record = [0; RECORD_LEN];
        self.memory.read(RECORD, &mut record);
        let copies: BTreeSet<&[u8]> = record.chunks(8).collect();
        assert_eq!(copies.len(), 1, "a record that is half another: {record:?}");
        let (count, _) = record.split_at(8);
        Ok(u64::from_ne_bytes(count.try_into().expect("8 bytes")))
    }

    fn write(&mut self, count: u64, care: Care) -> Result<(), Error> {
        let record = [count; RECORD_LEN / 8].map(u64::to_ne_bytes).concat();
        self.memory.write(RECORD, &record);
        let mut posted = Vec::new();
        for replica in 0..self.replicas.len() {
            let wr_id = self.wr_id();
            let to = &self.replicas[replica];
            let sges = [self.memory.sge(RECORD..LEN)];
            let wr = SendWr::rdma_write(wr_id, &sges, to.addr + RECORD as u64, to.rkey);
            to.qp.post_send(&wr.signaled())?;
            posted.push(wr_id);
        }
        let waited_for = match care {
            Care::ForAll => posted.len(),
            Care::ForOne => 1,
        };
        for wr_id in posted.into_iter().take(waited_for) {
            self.wait(wr_id)?;
        }
        Ok(())
    }
}

/// What must hold of all that was counted: each count once, and in the order of time, wherever one was done before
/// another began. That makes the counter linearizable, and the lock exclusive.
pub(crate) fn check(counted: &[Counted]) -> Result<(), String> {
    let mut sorted = counted.to_vec();
    sorted.sort_by_key(|one| one.count);
    for (count, one) in (1..).zip(&sorted) {
        if one.count != count {
            return Err(format!(
                "the counts are {:?}",
                sorted.iter().map(|one| one.count).collect::<Vec<_>>()
            ));
        }
    }
    for pair in sorted.windows(2) {
        if pair[1].to < pair[0].from {
            return Err(format!("{:?} came before {:?}", pair[1], pair[0]));
        }
    }
    Ok(())
}
