//! `urxe run` and `urxe env`: programs that were built for RDMA adapters, on urxe.

mod library;
mod names;
mod preload;
mod reach;
mod tree;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, getppid};
use urxe::{ErrorKind, Likeness, ListedDevice, PortSpeed, read_key_file};

pub(crate) use library::find as find_library;
pub(crate) use names::{LINKS, NAME as LIBRARY, PATHS as PRELOAD, SIMULATED};
pub(crate) use reach::obstacle;

use crate::args::{EnvArgs, EnvFormat, LaunchArgs, RunArgs};
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
    let variables = variables(&args.launch, Owner::Process(std::process::id()))?;
    if let Some(obstacle) = obstacle(program) {
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

/// Prints what `run` would set, for a shell or another program to take over.
pub(crate) fn env(args: &EnvArgs) -> Result<(), CliError> {
    // It is for the programs of the shell that asks.
    let shell = Pid::as_raw(getppid()).unsigned_abs();
    let owner = if args.persist {
        Owner::Kept
    } else {
        Owner::Process(shell)
    };
    let variables = variables(&args.launch, owner)?;
    let texts = variables
        .iter()
        .map(|(name, value)| (*name, value.to_string_lossy()));
    let mut out = io::stdout().lock();
    match args.format {
        EnvFormat::Shell => {
            for (name, value) in texts {
                writeln!(out, "export {name}={}", quoted(&value))?;
            }
        }
        EnvFormat::Lines => {
            for (name, value) in texts {
                if value.contains('\n') {
                    let text = format!("{name} has more than one line: use another --format");
                    return Err(CliError::Failed(text));
                }
                writeln!(out, "{name}={value}")?;
            }
        }
        EnvFormat::Json => {
            let object: BTreeMap<&str, Cow<'_, str>> = texts.collect();
            writeln!(
                out,
                "{}",
                serde_json::to_string(&object).map_err(io::Error::from)?
            )?;
        }
    }
    Ok(())
}

/// What the environment of a program in a simulation needs, to see this device.
#[cfg(feature = "sim")]
pub(crate) fn simulated(device: &str) -> Result<Vec<(&'static str, OsString)>, CliError> {
    let library = library::find()?;
    let file = library.join(SIMULATED);
    if !file.is_file() {
        let text = format!(
            "there is no {SIMULATED} beside {LIBRARY} in {}",
            library.display()
        );
        return Err(CliError::Failed(text));
    }
    let mut variables = vec![
        ("URXE_DEVICES", OsString::from(device)),
        ("URXE_SIMULATED", "1".into()),
        ("LD_LIBRARY_PATH", search_path(library.clone())?),
    ];
    variables.extend(preload::variables(&[library.join(LIBRARY), file]));
    Ok(variables)
}

/// With what the files end that are made for programs.
#[derive(Clone, Copy)]
enum Owner {
    Process(u32),
    /// None: they stay.
    Kept,
}

/// What the environment of the program needs.
fn variables(args: &LaunchArgs, owner: Owner) -> Result<Vec<(&'static str, OsString)>, CliError> {
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
    if let Some(file) = &args.key_file {
        let absolute = std::path::absolute(file);
        let absolute = absolute.context(format_args!("cannot use {}", file.display()))?;
        read_key_file(&absolute).map_err(|error| CliError::Failed(error.to_string()))?;
        variables.push(("URXE_KEY_FILE", absolute.into()));
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
        (
            "URXE_SECURITY",
            args.security.map(|security| security.to_string()),
        ),
        ("URXE_WIRE", args.wire.wire.map(name_of)),
        ("URXE_CONGESTION", args.congestion.clone()),
        ("URXE_RECOVERY", args.recovery.map(name_of)),
        ("URXE_SHARDS", args.shards.map(|shards| shards.to_string())),
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
    owner: Owner,
) -> Option<PathBuf> {
    if args.no_sysfs || !library.join(PRELOAD).is_file() {
        return None;
    }
    let planted = match owner {
        Owner::Process(owner) => tree::plant(devices, speed, owner),
        Owner::Kept => tree::keep(devices, speed),
    };
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
    listed.map_err(|error| match error.kind() {
        // What was typed is the option, and not the variable that it becomes.
        ErrorKind::Environment { reason, .. } if !args.device.is_empty() => {
            CliError::Usage(format!("--device {reason}"))
        }
        _ => CliError::Usage(error.to_string()),
    })
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
