//! What this build of the command lacks is done by the whole command, which cargo builds then. A clone's first
//! `cargo run` is for a first look, and builds neither the simulator nor what seals packets.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process;

use crate::args::Command;
use crate::error::{CliError, Context};

/// Whether this is the whole command.
pub(crate) const IS_WHOLE: bool = cfg!(all(feature = "seal", feature = "sim"));

/// How the whole command is built, for who started this one without cargo.
const HOW: &str = "this build of urxe has no simulator, seals no packets and is for no package: `cargo build --release --workspace` makes the whole \
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
    eprintln!("urxe: the whole command is needed: cargo builds it if it is not there");
    Err(CliError::context("cannot start cargo", command.exec()))
}

/// Whether this build lacks what seals packets, and the command or the environment asks for it.
pub(crate) fn lacks_ciphers(command: &Command) -> bool {
    !cfg!(feature = "seal") && (names_key(command) || seals(|name| std::env::var_os(name)))
}

fn names_key(command: &Command) -> bool {
    match command {
        Command::Key(_) => true,
        Command::Decode(args) => args.key_file.is_some(),
        Command::Run(args) => args.launch.key_file.is_some(),
        Command::Env(args) => args.launch.key_file.is_some(),
        _ => false,
    }
}

/// As contexts read them (docs/ENVIRONMENT.md).
fn seals(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name| {
        let value = variable(name)?.to_string_lossy().trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    match set("URXE_SECURITY") {
        Some(mode) => mode != "off",
        None => set("URXE_KEY_FILE").is_some(),
    }
}

/// cargo's command for the arguments: the same profile, in the same target folder. `this` is TARGET/PROFILE/NAME.
fn whole(
    cargo: &OsStr,
    crate_folder: &OsStr,
    this: &Path,
    args: impl Iterator<Item = OsString>,
) -> Option<process::Command> {
    let folder = this.parent()?;
    let profile = match folder.file_name()? {
        name if name == "debug" => OsStr::new("dev"),
        name => name,
    };
    let mut command = process::Command::new(cargo);
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
    use clap::Parser;

    use super::*;
    use crate::args::Args;

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

    #[test]
    fn what_seals_is_found_in_the_command_and_in_the_environment() {
        let args = |line: &str| Args::try_parse_from(line.split(' ')).expect(line).command;
        for (line, is_named) in [
            ("urxe key new a", true),
            ("urxe decode --key-file a b", true),
            ("urxe run --key-file a -- b", true),
            ("urxe env --key-file a", true),
            ("urxe decode b", false),
            ("urxe run -- b --key-file a", false),
            ("urxe pingpong", false),
        ] {
            assert_eq!(names_key(&args(line)), is_named, "{line}");
        }
        for (mode, file, is_right) in [
            ("", "", false),
            ("", " ", false),
            ("", "a", true),
            (" off ", "a", false),
            ("seal,pairs", "", true),
            ("auth", "a", true),
        ] {
            let variable = |name: &str| match name {
                "URXE_SECURITY" => Some(mode.into()),
                "URXE_KEY_FILE" => Some(file.into()),
                _ => None,
            };
            assert_eq!(seals(variable), is_right, "{mode:?} {file:?}");
        }
    }
}
