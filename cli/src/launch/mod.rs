//! `urxe run` and `urxe env`: programs that were built for RDMA adapters, on urxe.

mod library;
mod reach;
mod tree;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::unistd::getppid;
use urxe::ListedDevice;

pub(crate) use library::{NAME as LIBRARY, find as find_library};
pub(crate) use tree::PRELOAD;

use crate::args::{EnvArgs, LaunchArgs, RunArgs};
use crate::error::CliError;

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
pub(crate) fn env(args: &EnvArgs) -> Result<(), CliError> {
    // It is for the programs of the shell that asks.
    let shell = getppid().as_raw().unsigned_abs();
    let mut out = io::stdout().lock();
    for (name, value) in variables(&args.launch, shell)? {
        writeln!(out, "export {name}={}", quoted(&value.to_string_lossy()))?;
    }
    Ok(())
}

/// What the environment of the program needs; `owner` is the process with which all that is made for it goes.
fn variables(args: &LaunchArgs, owner: u32) -> Result<Vec<(&'static str, OsString)>, CliError> {
    let devices = devices(args)?;
    let library = library::find()?;
    let mut variables = vec![("LD_LIBRARY_PATH", search_path(library.clone())?)];
    if !args.device.is_empty() {
        variables.push(("URXE_DEVICES", args.device.join(",").into()));
    }
    if !args.no_sysfs {
        match tree::variables(&library, &devices, owner) {
            Ok(more) => variables.extend(more.into_iter().flatten()),
            // Most programs need no such files.
            Err(error) => eprintln!("urxe: no device files are shown to the program: {error}"),
        }
    }
    if let Some(file) = &args.pcap {
        // The program may change its directory before it opens a device.
        let absolute = std::path::absolute(file)
            .map_err(|error| CliError::context(format!("cannot use {}", file.display()), error))?;
        variables.push(("URXE_PCAP", absolute.into()));
    }
    if args.strict {
        variables.push(("URXE_STRICT", "1".into()));
    }
    if let Some(faults) = &args.faults {
        variables.push(("URXE_FAULTS", faults.to_string().into()));
    }
    if let Some(mtu) = args.mtu {
        variables.push(("URXE_MTU", mtu.to_string().into()));
    }
    if args.verbose {
        variables.push(("URXE_VERBOSE", "1".into()));
    }
    Ok(variables)
}

/// The devices that the program will see.
fn devices(args: &LaunchArgs) -> Result<Vec<ListedDevice>, CliError> {
    let listed = if args.device.is_empty() {
        ListedDevice::list()
    } else {
        ListedDevice::parse_list(&args.device.join(","))
    };
    listed.map_err(|error| CliError::Usage(error.to_string()))
}

/// Our folder first, then what was there before.
fn search_path(folder: PathBuf) -> Result<OsString, CliError> {
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let rest = std::env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
    std::env::join_paths(std::iter::once(folder.clone()).chain(rest))
        .map_err(|error| CliError::context(format!("cannot search {}", folder.display()), error))
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
