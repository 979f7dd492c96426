//! Ports of this process: which identifier has which, and free ones to give out. Between processes the
//! registry sees to it ([`crate::share`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use super::error::CmError;
use super::param::PortSpace;
use crate::context::Context;
use crate::error::Error;
use crate::lock::lock;
use crate::mem::fork::Generation;
use crate::share::{PORT_BLOCK, PortName};

/// A new block may be one that this process had by a context that is closed, with all its ports still held: then another
/// is tried.
const BLOCKS_TRIED: usize = 8;

/// A port, as long as this lives.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) name: PortName,
    /// The context with the membership that has it in the registry, if any.
    home: Option<Context>,
    /// True if it was given out from a block, and goes back there.
    is_of_block: bool,
    ports: Arc<Ports>,
    generation: Generation,
    number: u64,
}

/// Which identifier has which port: of the process, or of a host of a [`crate::network`].
#[derive(Debug)]
pub(super) struct Ports(Mutex<Table>);

#[derive(Debug)]
struct Holder {
    name: PortName,
    reuse: bool,
    is_listening: bool,
    number: u64,
}

#[derive(Debug)]
struct Table {
    generation: Generation,
    /// In a tree, which has no memory left when thousands are free again.
    held: BTreeMap<(u16, u16), Vec<Holder>>,
    /// By port space: ports to give out, the longest unused first.
    free: HashMap<u16, VecDeque<u16>>,
    next: u64,
}

impl Default for Ports {
    fn default() -> Ports {
        Ports(Mutex::new(Table::new()))
    }
}

impl Ports {
    /// Those of the sockets of this process.
    pub(super) fn of_process() -> Arc<Ports> {
        static PORTS: LazyLock<Arc<Ports>> = LazyLock::new(Arc::default);
        PORTS.clone()
    }

    /// The table; a child of a fork begins with an empty one.
    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = lock(&self.0);
        if table.generation.is_past() {
            *table = Table::new();
        }
        table
    }
}

impl Lease {
    /// Binds a certain port, or for port 0 any. `home` is a context of this process.
    pub(super) fn take(
        ports: &Arc<Ports>,
        space: PortSpace,
        addr: SocketAddr,
        (reuse, v6_only): (bool, bool),
        home: &Context,
    ) -> Result<Lease, Error> {
        let name = PortName {
            space: space as u16,
            addr: addr.ip(),
            port: addr.port(),
            v6_only,
        };
        if name.port == 0 {
            return Lease::take_any(ports, name, home);
        }
        let in_use = || Error::from(CmError::PortInUse(addr));
        // Held before the registry is asked, which may take long: threads that want other ports do not wait.
        let mut lease = Lease::hold(ports, name, reuse).ok_or_else(in_use)?;
        if let Some(membership) = &home.engine().membership {
            let bound = membership.bind_port(name, reuse);
            if !bound.map_err(Error::io("binding a port in the registry of this host"))? {
                return Err(in_use());
            }
            lease.home = Some(home.clone());
        }
        Ok(lease)
    }

    /// Has a port in this process. `None` if another has it here.
    fn hold(ports: &Arc<Ports>, name: PortName, reuse: bool) -> Option<Lease> {
        let table = &mut *ports.table();
        let holders = table.held.get(&(name.space, name.port));
        let is_taken = |holder: &Holder| {
            holder.name.meets(&name) && (!reuse || !holder.reuse || holder.is_listening)
        };
        if holders.is_some_and(|holders| holders.iter().any(is_taken)) {
            return None;
        }
        Some(table.add(ports, name, reuse))
    }

    fn take_any(ports: &Arc<Ports>, name: PortName, home: &Context) -> Result<Lease, Error> {
        for _ in 0..BLOCKS_TRIED {
            if let Some(lease) = Lease::hold_any(ports, name) {
                return Ok(lease);
            }
            refill(ports, name.space, home)?;
        }
        Err(CmError::NoPort.into())
    }

    /// Has a port of those that this process gives out, if one is left.
    fn hold_any(ports: &Arc<Ports>, name: PortName) -> Option<Lease> {
        let table = &mut *ports.table();
        let free = table.free.entry(name.space).or_default();
        for _ in 0..free.len() {
            let port = free.pop_front()?;
            if table.held.contains_key(&(name.space, port)) {
                // It was asked for by its number.
                free.push_back(port);
                continue;
            }
            let mut lease = table.add(ports, PortName { port, ..name }, false);
            lease.is_of_block = true;
            return Some(lease);
        }
        None
    }

    /// From now on the port is not shared any more. False if it has a listener
    /// already.
    pub(super) fn listen(&self) -> bool {
        let table = &mut *self.ports.table();
        let Some(holders) = table.held.get_mut(&(self.name.space, self.name.port)) else {
            return false;
        };
        let others = |holder: &Holder| {
            holder.number != self.number && holder.is_listening && holder.name.meets(&self.name)
        };
        if holders.iter().any(others) {
            return false;
        }
        let own = holders
            .iter_mut()
            .find(|holder| holder.number == self.number);
        own.map(|holder| holder.is_listening = true).is_some()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.generation.is_past() {
            return;
        }
        let membership = self.home.as_ref().map(|home| &home.engine().membership);
        if let Some(Some(membership)) = membership {
            // Before the table has it free, or a thread of this process that takes it could find it bound there. What is
            // left is gone with the process.
            let _ = membership.release_port(self.name, false);
        }
        let table = &mut *self.ports.table();
        let key = (self.name.space, self.name.port);
        if let Some(holders) = table.held.get_mut(&key) {
            holders.retain(|holder| holder.number != self.number);
            if holders.is_empty() {
                table.held.remove(&key);
            }
        }
        if self.is_of_block {
            let free = table.free.entry(self.name.space).or_default();
            free.push_back(self.name.port);
        }
    }
}

impl Table {
    fn new() -> Table {
        Table {
            generation: Generation::current(),
            held: BTreeMap::new(),
            free: HashMap::new(),
            next: 0,
        }
    }

    fn add(&mut self, ports: &Arc<Ports>, name: PortName, reuse: bool) -> Lease {
        self.next += 1;
        let number = self.next;
        let holder = Holder {
            name,
            reuse,
            is_listening: false,
            number,
        };
        let key = (name.space, name.port);
        self.held.entry(key).or_default().push(holder);
        Lease {
            name,
            home: None,
            is_of_block: false,
            ports: ports.clone(),
            generation: self.generation,
            number,
        }
    }
}

/// More ports to give out. Other threads go on meanwhile; two that come at once get a block each.
fn refill(ports: &Ports, space: u16, home: &Context) -> Result<(), Error> {
    let random = home.engine().random()?;
    let first = match &home.engine().membership {
        Some(membership) => membership
            .take_port_block(space, random)
            .map_err(Error::io("taking ports from the registry of this host"))?
            .ok_or(CmError::NoPort)?,
        // There is nothing to ask. It may be one that is in the list already; ports that
        // are held are passed over.
        None => 32768 + (random % 440) as u16 * PORT_BLOCK,
    };
    let table = &mut *ports.table();
    let free = table.free.entry(space).or_default();
    free.extend(first..first + PORT_BLOCK);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::thread;
    use std::time::Instant;

    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::testing::{PATIENCE, address};

    /// A port that this process has, or is about to have.
    fn is_held(space: PortSpace, port: u16) -> bool {
        Ports::of_process()
            .table()
            .held
            .contains_key(&(space as u16, port))
    }

    #[test]
    fn who_waits_for_the_registry_keeps_no_other_thread_from_its_ports() {
        let home = Context::open(address().into()).expect("the address is free");
        if home.engine().membership.is_none() {
            println!("skipped: there is no registry here");
            return;
        }
        let addr = SocketAddr::new(home.address(), 31_999);
        // As another process would that is stopped.
        let directory = crate::user_directory().expect("there is a registry");
        let registries = fs::read_dir(directory).expect("readable");
        let registries = registries.map(|entry| entry.expect("readable").path());
        let is_registry = |path: &std::path::PathBuf| {
            let name = path.file_name().expect("an entry").to_string_lossy();
            name.starts_with("qpns-")
        };
        let locks: Vec<File> = registries
            .filter(is_registry)
            .map(|path| {
                let file = File::open(path).expect("ours");
                flock(&file, FlockOperation::LockExclusive).expect("soon free");
                file
            })
            .collect();
        assert!(!locks.is_empty());
        let lease = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let ports = Ports::of_process();
                Lease::take(&ports, PortSpace::Tcp, addr, (false, false), &home)
            });
            let start = Instant::now();
            while !is_held(PortSpace::Tcp, addr.port()) {
                assert!(!waiting.is_finished(), "it waited with the table");
                assert!(start.elapsed() < PATIENCE);
                thread::yield_now();
            }
            drop(locks);
            waiting.join().expect("no panic")
        });
        drop(lease.expect("the lock is free again"));
        assert!(!is_held(PortSpace::Tcp, addr.port()));
    }
}
