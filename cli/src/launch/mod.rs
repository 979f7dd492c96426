//! `urxe run` and `urxe env`: programs that were built for RDMA adapters, on urxe.

mod library;
mod names;
mod preload;
mod reach;
mod tree;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::getppid;
use urxe::{Likeness, ListedDevice, PortSpeed};

pub(crate) use library::find as find_library;
pub(crate) use names::{LINKS, NAME as LIBRARY, PATHS as PRELOAD};

use crate::args::{LaunchArgs, RunArgs};
use crate::error::{CliError, Context};
use crate::target::name_of;

/// Where NCCL and MSCCL++ take their libibverbs from.
const PLUG_IN: [&str; 2] = ["NCCL_IBVERBS_LIB", "MSCCLPP_IBV_SO"];

/// Becomes the program: its exit status, its signals and its process id are those of `urxe run`.
pub(crate) fn run(args: &RunArgs) -> Result<(), CliError> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(CliError::Usage("there is no command to run".to_owned()));
    };
    // The program has the process id that this process has.
    let variables = variables(&args.launch, std::process::id())?;
    if let Some(obstacle) = reach::obstacle(program) {
        // It may still start others, which are reached.
        let program = program.to_string_lossy();
        eprintln!("urxe: {program} itself does not see urxe: it is {obstacle}");
    }
    let root = variables.iter().find(|(name, _)| *name == tree::VARIABLE);
    let root = root.map(|(_, root)| root.clone());
    let error = Command::new(program).args(rest).envs(variables).exec();
    if let Some(root) = root {
        // It will not be needed.
        let _ = std::fs::remove_dir_all(root);
    }
    // As `env` and shells have it.
    let code = if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    Err(CliError::NotStarted {
        program: program.to_string_lossy().into_owned(),
        error,
        code,
    })
}

/// Prints what `run` would set, for a shell to take over.
pub(crate) fn env(args: &LaunchArgs) -> Result<(), CliError> {
    // It is for the programs of the shell that asks.
    let shell = getppid().as_raw().unsigned_abs();
    let mut out = io::stdout().lock();
    for (name, value) in variables(args, shell)? {
        writeln!(out, "export {name}={}", quoted(&value.to_string_lossy()))?;
    }
    Ok(())
}

/// What the environment of the program needs; `owner` is the process with which all that is made for it goes.
fn variables(args: &LaunchArgs, owner: u32) -> Result<Vec<(&'static str, OsString)>, CliError> {
    let devices = devices(args)?;
    let speed = args.speed.map_or_else(PortSpeed::of_environment, Ok);
    let speed = speed.map_err(|error| CliError::Usage(error.to_string()))?;
    let library = library::find()?;
    let mut variables = vec![("LD_LIBRARY_PATH", search_path(library.clone())?)];
    if !args.device.is_empty() {
        variables.push(("URXE_DEVICES", args.device.join(",").into()));
    }
    // Programs that load verbs themselves ask for the file by these.
    let file = library.join(LIBRARY);
    variables.extend(PLUG_IN.map(|name| (name, OsString::from(&file))));
    if !args.no_preload {
        let tree = tree(args, &library, &devices, speed, owner);
        let preloaded = preload::libraries(&library, tree.is_some());
        variables.extend(preload::variables(&preloaded));
        variables.extend(tree.map(|root| (tree::VARIABLE, root.into())));
    }
    if let Some(file) = &args.pcap {
        // The program may change its directory before it opens a device.
        let absolute = std::path::absolute(file);
        let absolute = absolute.context(format_args!("cannot use {}", file.display()))?;
        variables.push(("URXE_PCAP", absolute.into()));
    }
    let flag = |is_set: bool| is_set.then(|| "1".to_owned());
    let more = [
        ("URXE_STRICT", flag(args.strict)),
        ("URXE_FAULTS", args.faults.as_ref().map(ToString::to_string)),
        ("URXE_MTU", args.mtu.map(|mtu| mtu.to_string())),
        (
            "URXE_SPEED",
            args.speed.map(|speed| speed.gbps().to_string()),
        ),
        (
            "URXE_AS",
            args.likeness.map(|likeness| likeness.to_string()),
        ),
        ("URXE_WIRE", args.wire.wire.map(name_of)),
        ("URXE_CONGESTION", args.congestion.clone()),
        ("URXE_RECOVERY", args.recovery.map(name_of)),
        ("URXE_VERBOSE", flag(args.verbose)),
    ];
    let more = more.into_iter();
    variables.extend(more.filter_map(|(name, value)| Some((name, value?.into()))));
    Ok(variables)
}

/// The device files, if the program is to see some.
fn tree(
    args: &LaunchArgs,
    library: &Path,
    devices: &[ListedDevice],
    speed: PortSpeed,
    owner: u32,
) -> Option<PathBuf> {
    if args.no_sysfs || !library.join(PRELOAD).is_file() {
        return None;
    }
    let planted = tree::plant(devices, speed, owner);
    // Most programs need no such files.
    let tell = |error: &_| eprintln!("urxe: no device files are shown to the program: {error}");
    planted.inspect_err(tell).ok()
}

/// The devices that the program will see.
fn devices(args: &LaunchArgs) -> Result<Vec<ListedDevice>, CliError> {
    let likeness = args.likeness.map_or_else(Likeness::of_environment, Ok);
    let listed = likeness.and_then(|likeness| match &args.device[..] {
        [] => ListedDevice::list_as(likeness),
        devices => ListedDevice::parse_list_as(&devices.join(","), likeness),
    });
    listed.map_err(|error| CliError::Usage(error.to_string()))
}

/// Our folder first, then what was there before.
fn search_path(folder: PathBuf) -> Result<OsString, CliError> {
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let rest = std::env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
    let joined = std::env::join_paths(std::iter::once(folder.clone()).chain(rest));
    joined.context(format_args!("cannot search {}", folder.display()))
}

/// A word that a shell reads as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_gets_back_what_was_quoted() {
        for text in ["", "/a b/c", "it's", "$HOME;`x`\"\\"] {
            let line = format!("printf %s {}", quoted(text));
            let output = Command::new("sh").args(["-c", &line]).output();
            assert_eq!(output.expect("a shell").stdout, text.as_bytes());
        }
    }
}
