//! The device files that an adapter's driver would make, for programs that look at them: a tree of a program's own,
//! and the library that leads its paths there (`preload`).
//!
//! `urxe run` becomes the program, so the program takes the tree away when it exits (`preload/src/cleanup.rs`); trees
//! of programs that were killed, or that end by `_exit`, go when the next one is made. A process id says something in its
//! own PID namespace alone, so a tree is called by both: containers that share the user's directory, in each of which the
//! first process is number 1, have trees of their own and take away no others'.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, Resource, getrlimit, test_kill_process};
use urxe::{ListedDevice, PortSpeed, RoceVersion};

/// Trees are called this; the PID namespace and the process id of their owners follow.
const NAME: &str = "tree-";
/// Trees that stay are called this; a number that follows from what is in them comes behind it.
const KEPT: &str = "kept-";
/// Longer than any file of a tree.
const FILE_LEN_MAX: u64 = 4096;

/// Says where the tree is.
pub(super) const VARIABLE: &str = "URXE_ROOT";

/// Makes a tree with these devices, to go with the process `owner`; returns where it is.
pub(super) fn plant(devices: &[ListedDevice], speed: PortSpeed, owner: u32) -> io::Result<PathBuf> {
    let base = writable_base()?;
    // Where it is not known, other namespaces' names look like ours.
    let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
    remove_dead(&base, namespace);
    let root = base.join(format!("{NAME}{namespace}.{owner}"));
    make(&root, devices, speed).inspect_err(|_| {
        // What there is of it is of no use.
        let _ = fs::remove_dir_all(&root);
    })?;
    Ok(root)
}

/// Makes a tree that stays, for all programs of a job; returns where it is. It is the same for the same devices, so there are never
/// many.
pub(super) fn keep(devices: &[ListedDevice], speed: PortSpeed) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    format!("{devices:?} {speed:?} {}", env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    let base = writable_base()?;
    let root = base.join(format!("{KEPT}{:016x}", hasher.finish()));
    if root.is_dir() {
        return Ok(root);
    }
    // Beside it first: another process may be about to use it.
    let new = root.with_extension(format!("new-{}", std::process::id()));
    let made = make(&new, devices, speed).and_then(|()| fs::rename(&new, &root));
    match made {
        // Another process was faster.
        Err(_) if root.is_dir() => drop(fs::remove_dir_all(&new)),
        Err(error) => {
            let _ = fs::remove_dir_all(&new);
            return Err(error);
        }
        Ok(()) => {}
    }
    Ok(root)
}

/// The user's directory, where there may be files of this length.
fn writable_base() -> io::Result<PathBuf> {
    if getrlimit(Resource::Fsize)
        .current
        .is_some_and(|limit| limit < FILE_LEN_MAX)
    {
        // To write more would end this process.
        return Err(io::Error::other(
            "the limit of file sizes (ulimit -f) is too low",
        ));
    }
    urxe::user_directory()
}

/// Takes away what killed programs left in this PID namespace.
fn remove_dead(base: &Path, namespace: u64) {
    let prefix = format!("{NAME}{namespace}.");
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        let owner = owner.and_then(|owner| owner.parse().ok().filter(|&pid: &i32| pid > 0));
        if owner
            .and_then(Pid::from_raw)
            .is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
        {
            // Another process may have been faster.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn make(root: &Path, devices: &[ListedDevice], speed: PortSpeed) -> io::Result<()> {
    let create = || DirBuilder::new().mode(0o700).create(root);
    if let Err(error) = create() {
        // Of a dead process that had our id.
        if error.kind() != io::ErrorKind::AlreadyExists || fs::remove_dir_all(root).is_err() {
            return Err(error);
        }
        create()?;
    }
    let verbs = root.join("sys/class/infiniband_verbs");
    let files = root.join("dev/infiniband");
    fs::create_dir_all(&verbs)?;
    fs::create_dir_all(&files)?;
    fs::create_dir_all(root.join("sys/class/infiniband"))?;
    write(&verbs, "abi_version", "6")?;
    for (index, device) in devices.iter().enumerate() {
        let uverbs = format!("uverbs{index}");
        // A character device that all may open: more is not looked at.
        symlink("/dev/null", files.join(&uverbs))?;
        let folder = verbs.join(&uverbs);
        fs::create_dir(&folder)?;
        write(&folder, "ibdev", device.name())?;
        write(&folder, "abi_version", "1")?;
        describe(
            &root.join("sys/class/infiniband").join(device.name()),
            device,
            speed,
        )?;
    }
    Ok(())
}

fn describe(folder: &Path, device: &ListedDevice, speed: PortSpeed) -> io::Result<()> {
    let guid = device.guid();
    let part = |shift: u32| (guid >> shift) & 0xffff;
    let guid = format!(
        "{:04x}:{:04x}:{:04x}:{:04x}",
        part(48),
        part(32),
        part(16),
        part(0)
    );
    fs::create_dir(folder)?;
    write(folder, "node_type", "1: CA")?;
    write(folder, "node_guid", &guid)?;
    write(folder, "sys_image_guid", &guid)?;
    write(folder, "node_desc", "urxe")?;
    write(folder, "hca_type", "urxe")?;
    write(folder, "board_id", "urxe")?;
    write(folder, "fw_ver", env!("CARGO_PKG_VERSION"))?;

    let bus = folder.join("device");
    fs::create_dir(&bus)?;
    let real = device
        .interface()
        .map(|name| Path::new("/sys/class/net").join(name).join("device"));
    for (name, otherwise) in [("numa_node", Some("-1")), ("local_cpus", None)] {
        let text = real
            .as_ref()
            .and_then(|real| fs::read_to_string(real.join(name)).ok());
        if let Some(text) = text.as_deref().or(otherwise) {
            write(&bus, name, text.trim())?;
        }
    }
    if let Some(interface) = device.interface() {
        fs::create_dir_all(bus.join("net").join(interface))?;
    }
    describe_port(&folder.join("ports/1"), device, speed)
}

fn describe_port(port: &Path, device: &ListedDevice, speed: PortSpeed) -> io::Result<()> {
    for name in ["gids", "gid_attrs/types", "gid_attrs/ndevs", "pkeys"] {
        fs::create_dir_all(port.join(name))?;
    }
    write(port, "state", "4: ACTIVE")?;
    write(port, "phys_state", "5: LinkUp")?;
    write(port, "link_layer", "Ethernet")?;
    write(port, "rate", &speed.to_string())?;
    write(port, "lid", "0x0")?;
    write(port, "sm_lid", "0x0")?;
    write(&port.join("pkeys"), "0", "0xffff")?;
    for (index, (place, gid)) in device.gid_table().into_iter().enumerate() {
        let index = index.to_string();
        let groups = gid.0.chunks(2);
        let groups: Vec<String> = groups
            .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
            .collect();
        let version = match place.version {
            RoceVersion::V1 => "IB/RoCE v1",
            RoceVersion::V2 => "RoCE v2",
        };
        write(&port.join("gids"), &index, &groups.join(":"))?;
        write(&port.join("gid_attrs/types"), &index, version)?;
        if let Some(interface) = device.interface() {
            write(&port.join("gid_attrs/ndevs"), &index, interface)?;
        }
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    fs::write(folder.join(name), format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("urxe-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_tree_describes_its_devices() {
        let folder = scratch("tree");
        let root = folder.join("tree");
        let devices = ListedDevice::parse_list("127.0.0.3,roce=fd00::7").expect("a list");
        // A second time takes the place of the first.
        let speeds = ["25", "200"].map(|text| text.parse().expect("a speed"));
        make(&root, &devices, speeds[0]).expect("it can be made");
        make(&root, &devices, speeds[1]).expect("it can be made again");
        let read = |path: &str| {
            let text = fs::read_to_string(root.join("sys/class").join(path));
            text.unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        assert_eq!(read("infiniband_verbs/uverbs1/ibdev"), "roce\n");
        assert_eq!(read("infiniband/urxe0/node_guid"), "0275:7278:7f00:0003\n");
        let port = "infiniband/roce/ports/1";
        assert_eq!(
            read(&format!("{port}/gids/0")),
            "fd00:0000:0000:0000:0000:0000:0000:0007\n"
        );
        assert_eq!(read(&format!("{port}/gid_attrs/types/0")), "RoCE v2\n");
        assert_eq!(read(&format!("{port}/rate")), "200 Gb/sec (4X HDR)\n");
        use std::os::unix::fs::FileTypeExt;
        let file = fs::metadata(root.join("dev/infiniband/uverbs0")).expect("it is there");
        assert!(file.file_type().is_char_device());
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn trees_of_the_dead_are_removed_and_others_are_not() {
        let base = scratch("trees");
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let dead = child.id();
        child.wait().expect("it ends");
        let name = |namespace: u64, owner: &str| base.join(format!("{NAME}{namespace}.{owner}"));
        let (own, dead) = (std::process::id().to_string(), dead.to_string());
        // In another PID namespace there may be such a process.
        let stays = [name(7, &own), name(7, "x"), name(8, &dead), name(71, &dead)];
        for tree in stays.iter().chain([&name(7, &dead)]) {
            fs::create_dir_all(tree.join("sys")).expect("a folder");
        }
        remove_dead(&base, 7);
        assert!(!name(7, &dead).exists());
        assert!(stays.iter().all(|tree| tree.exists()));
        fs::remove_dir_all(&base).expect("it is ours");
    }
}
