//! What this build of the command lacks is done by the whole command, which cargo builds then. A clone's first
//! `cargo run` is for a first look, and does not build the simulator.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::error::{CliError, Context};

/// Whether this is the whole command.
pub(crate) const IS_WHOLE: bool = cfg!(feature = "sim");

/// How the whole command is built, for who started this one without cargo.
const HOW: &str = "this build of urxe has no simulator and is for no package: `cargo build --release --workspace` makes the whole \
                   command, target/release/urxe";

/// Becomes the whole command, with this process's arguments. Returns if it cannot.
pub(crate) fn run() -> Result<(), CliError> {
    let this = std::env::current_exe().context("cannot find this executable")?;
    // `cargo run` sets both for the program that it starts.
    let (cargo, crate_folder) = (
        std::env::var_os("CARGO"),
        std::env::var_os("CARGO_MANIFEST_DIR"),
    );
    let command = (cargo.as_deref().zip(crate_folder.as_deref()))
        .and_then(|(cargo, folder)| whole(cargo, folder, &this, std::env::args_os().skip(1)));
    let Some(mut command) = command else {
        return Err(CliError::Failed(HOW.to_owned()));
    };
    // Build scripts of other crates depend on what cargo tells the program that it runs: they would run again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    eprintln!(
        "urxe: the whole command is needed, with the simulator: cargo builds it if it is not there"
    );
    Err(CliError::context("cannot start cargo", command.exec()))
}

/// cargo's command for the arguments: the same profile, in the same target folder. `this` is TARGET/PROFILE/NAME.
fn whole(
    cargo: &OsStr,
    crate_folder: &OsStr,
    this: &Path,
    args: impl Iterator<Item = OsString>,
) -> Option<Command> {
    let folder = this.parent()?;
    let profile = match folder.file_name()? {
        name if name == "debug" => OsStr::new("dev"),
        name => name,
    };
    let mut command = Command::new(cargo);
    command
        .args(["run", "--package", "urxe-cli", "--bin", "urxe", "--profile"])
        .arg(profile)
        .arg("--target-dir")
        .arg(folder.parent()?)
        .arg("--manifest-path")
        .arg(Path::new(crate_folder).join("Cargo.toml"))
        .arg("--")
        .args(args);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(this: &str) -> Option<String> {
        let args = ["sim", "run", "a b"].map(OsString::from).into_iter();
        let command = whole("/c".as_ref(), "/s/cli/light".as_ref(), this.as_ref(), args)?;
        Some(format!("{command:?}"))
    }

    #[test]
    fn the_whole_command_is_of_the_same_profile_and_folder() {
        let expected = |profile| {
            format!(
                r#""/c" "run" "--package" "urxe-cli" "--bin" "urxe" "--profile" "{profile}" "--target-dir" "/t" "--manifest-path" "/s/cli/light/Cargo.toml" "--" "sim" "run" "a b""#
            )
        };
        assert_eq!(line("/t/release/urxe-light"), Some(expected("release")));
        assert_eq!(line("/t/debug/urxe-light"), Some(expected("dev")));
        assert_eq!(line("/"), None);
    }
}
