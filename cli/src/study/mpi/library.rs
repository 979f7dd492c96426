//! The MPI libraries: how their programs are built, and run over urxe and over TCP.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::hosts::{self, Hosts};
use super::missing::Missing;
use crate::error::{CliError, Context as _};

const SOURCE: &str = include_str!("osu.c");

/// In options: what the hosts' interface is called.
const INTERFACE: &str = "INTERFACE";
/// In options: the command that is used in place of ssh, and the names of the hosts.
const AGENT: &str = "AGENT";
const HOSTS: &str = "HOSTS";

/// What packets between the two processes go through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Urxe,
    Tcp,
}

/// Options of the launcher and variables, for one of [`Over`].
#[derive(Debug)]
struct Setting {
    options: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
}

#[derive(Debug)]
pub(super) struct Library {
    pub(super) name: &'static str,
    /// In names of files.
    pub(super) short: &'static str,
    /// Compiler and launcher: where several are installed beside each other, and where it is the only one.
    commands: [(&'static str, &'static str); 2],
    /// What its launcher says of its version.
    says: &'static str,
    packages: &'static str,
    over_urxe: Setting,
    over_tcp: Setting,
    /// Options for two hosts.
    between_hosts: &'static [&'static str],
}

pub(super) const LIBRARIES: &[Library] = &[
    Library {
        name: "Open MPI",
        short: "open-mpi",
        commands: [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc", "mpirun")],
        says: "Open MPI",
        packages: "openmpi-bin libopenmpi-dev",
        over_urxe: Setting {
            options: &[
                "--oversubscribe",
                "--mca",
                "pml",
                "ucx",
                // Variables of other names stay on this host.
                "-x",
                "UCX_TLS",
                "-x",
                "UCX_NET_DEVICES",
            ],
            variables: &[
                ("UCX_TLS", "rc_verbs,ud_verbs:aux,self"),
                ("UCX_NET_DEVICES", "urxe0:1"),
            ],
        },
        over_tcp: Setting {
            options: &[
                "--oversubscribe",
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "tcp,self",
                "--mca",
                "btl_tcp_if_include",
                INTERFACE,
            ],
            variables: &[],
        },
        between_hosts: &[
            // Each host would bind its first process to the first processor, and both have the same.
            "--bind-to",
            "none",
            "--mca",
            "plm_rsh_agent",
            AGENT,
            "--mca",
            "oob_tcp_if_include",
            INTERFACE,
            "--host",
            HOSTS,
        ],
    },
    Library {
        name: "MPICH",
        short: "mpich",
        commands: [("mpicc.mpich", "mpirun.mpich"), ("mpicc", "mpirun")],
        says: "HYDRA",
        packages: "mpich libmpich-dev",
        over_urxe: Setting {
            options: &[],
            variables: &[
                ("UCX_TLS", "rc_verbs,ud_verbs:aux,self"),
                ("UCX_NET_DEVICES", "urxe0:1"),
            ],
        },
        over_tcp: Setting {
            options: &[],
            variables: &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", INTERFACE)],
        },
        between_hosts: &["-launcher", "ssh", "-launcher-exec", AGENT, "-hosts", HOSTS],
    },
];

/// Both: root's processes, as in containers, and no memory that MPICH's processes would share by themselves.
const ALWAYS: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];

/// The measuring program, built; its folder goes with it.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) library: &'static Library,
    launcher: &'static str,
    folder: PathBuf,
}

impl Library {
    /// Builds the program by the library's compiler.
    pub(super) fn compile(&'static self) -> Result<Result<Program, Missing>, CliError> {
        let mut commands = self.commands.iter();
        let Some((compiler, launcher)) =
            commands.find(|(_, launcher)| self.is_launched_by(launcher))
        else {
            let Library { name, packages, .. } = self;
            return Ok(Err(Missing(format!(
                "{name} is not installed, or its compiler (Debian: apt-get install {packages})"
            ))));
        };
        let name = format!("urxe-study-{}-{}", self.short, std::process::id());
        let program = Program {
            library: self,
            launcher,
            folder: std::env::temp_dir().join(name),
        };
        let folder = &program.folder;
        fs::create_dir(folder).context(format_args!("cannot make {}", folder.display()))?;
        let source = folder.join("osu.c");
        fs::write(&source, SOURCE).context(format_args!("cannot write {}", source.display()))?;
        let built = Command::new(compiler)
            .args(["-O2", "-o"])
            .args([program.binary(), source])
            .stdin(Stdio::null())
            .output();
        Ok(match built {
            Ok(built) if built.status.success() => Ok(program),
            Ok(built) => Err(Missing(format!(
                "{compiler} builds no program (Debian: apt-get install {}): {}",
                self.packages,
                String::from_utf8_lossy(&built.stderr).trim()
            ))),
            Err(error) => Err(Missing(format!(
                "{compiler} cannot be run (Debian: apt-get install {}): {error}",
                self.packages
            ))),
        })
    }

    fn is_launched_by(&self, launcher: &str) -> bool {
        let version = Command::new(launcher).arg("--version").output();
        version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains(self.says))
    }
}

impl Program {
    fn binary(&self) -> PathBuf {
        self.folder.join("osu")
    }

    /// Where what belongs to a measurement lies, for as long as this lives.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the two processes print: of this host, or one on each of two.
    pub(super) fn run(
        &self,
        over: Over,
        scale: u32,
        hosts: Option<&Hosts>,
    ) -> Result<String, CliError> {
        let interface = hosts.map_or("lo", |_| hosts::INTERFACE);
        let own = std::env::current_exe().context("cannot find this command")?;
        let mut words: Vec<OsString> = Vec::new();
        let setting = match over {
            Over::Urxe => {
                words.push(own.into());
                words.extend(["run", "--device", interface, "--"].map(OsString::from));
                &self.library.over_urxe
            }
            Over::Tcp => &self.library.over_tcp,
        };
        words.push(self.launcher.into());
        let mut command = match hosts {
            Some(hosts) => hosts.first(),
            None => Command::new(words.remove(0)),
        };
        command.args(words);
        let between: &[&str] = hosts.map_or(&[], |_| self.library.between_hosts);
        for &option in between.iter().chain(setting.options) {
            match (option, hosts) {
                (INTERFACE, _) => command.arg(interface),
                (AGENT, Some(hosts)) => command.arg(hosts.agent()),
                (HOSTS, _) => command.arg(Hosts::names()),
                _ => command.arg(option),
            };
        }
        command
            .args(["-n", "2"])
            .arg(self.binary())
            .arg(scale.to_string());
        let variables = setting.variables.iter().map(|&(name, value)| match value {
            INTERFACE => (name, interface),
            _ => (name, value),
        });
        command.envs(ALWAYS).envs(variables);
        let ran = command.stdin(Stdio::null()).output();
        let ran = ran.context(format_args!("cannot run {}", self.launcher))?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        Err(CliError::Failed(format!(
            "{} over {over:?} failed ({}): {}",
            self.library.name,
            ran.status,
            String::from_utf8_lossy(&ran.stderr).trim()
        )))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A folder that is left costs a few kilobytes.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
