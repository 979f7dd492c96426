//! The MPI libraries: how their programs are built, and run over urxe and over TCP.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::{CliError, Context as _};

const SOURCE: &str = include_str!("osu.c");

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
}

pub(super) const LIBRARIES: &[Library] = &[
    Library {
        name: "Open MPI",
        short: "open-mpi",
        commands: [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc", "mpirun")],
        says: "Open MPI",
        packages: "openmpi-bin libopenmpi-dev",
        over_urxe: Setting {
            options: &["--oversubscribe", "--mca", "pml", "ucx"],
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
                "lo",
            ],
            variables: &[],
        },
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
            variables: &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")],
        },
    },
];

/// Both: root's processes, as in containers, and no memory that MPICH's processes would share by themselves.
const ALWAYS: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];

/// What is not installed, and how to get it.
#[derive(Debug)]
pub(super) struct Missing(pub(super) String);

/// The measuring program, built; its folder goes with it.
#[derive(Debug)]
pub(super) struct Program {
    library: &'static Library,
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

    /// What the two processes print.
    pub(super) fn run(&self, over: Over, scale: u32) -> Result<String, CliError> {
        let (setting, mut command) = match over {
            Over::Urxe => {
                let own = std::env::current_exe().context("cannot find this command")?;
                let mut command = Command::new(own);
                command.args(["run", "--device", "lo", "--", self.launcher]);
                (&self.library.over_urxe, command)
            }
            Over::Tcp => (&self.library.over_tcp, Command::new(self.launcher)),
        };
        command
            .args(setting.options)
            .args(["-n", "2"])
            .arg(self.binary())
            .arg(scale.to_string());
        command.envs(ALWAYS).envs(setting.variables.iter().copied());
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
