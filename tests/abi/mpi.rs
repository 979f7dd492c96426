//! The distribution's MPI and OpenSHMEM, over the UCX that both take: two processes of one host that may use nothing but
//! verbs for what they send each other.

use std::path::Path;
use std::process::Command;

use crate::c_program::{Compiled, compile_with};
use crate::ends::alone;
use crate::harness::{Ran, addresses, run, urxe};

/// A program built by one of their compilers, and started by one of their launchers.
struct Kind {
    compiler: &'static str,
    launcher: &'static str,
    package: &'static str,
    options: &'static [&'static str],
}

const MPICH: Kind = Kind {
    compiler: "mpicc.mpich",
    launcher: "mpirun.mpich",
    package: "mpich libmpich-dev",
    options: &[],
};
const OPEN_MPI: Kind = Kind {
    compiler: "mpicc.openmpi",
    launcher: "mpirun.openmpi",
    package: "openmpi-bin libopenmpi-dev",
    options: &[
        "--mca",
        "pml",
        "ucx",
        "--mca",
        "osc",
        "ucx",
        "--oversubscribe",
    ],
};
const OPEN_SHMEM: Kind = Kind {
    compiler: "oshcc",
    launcher: "oshrun",
    package: "openmpi-bin libopenmpi-dev",
    options: &["--oversubscribe"],
};

impl Kind {
    /// `None`, with the reason printed, where it is not installed.
    fn run(&self, source: &str, processes: &str) -> Option<Ran> {
        let is_there = |name: &str| Path::new("/usr/bin").join(name).exists();
        if !is_there(self.compiler) || !is_there(self.launcher) {
            println!(
                "skipped: {} is missing (apt-get install {})",
                self.launcher, self.package
            );
            return None;
        }
        let program: Compiled = compile_with(self.compiler, source, &[])?;
        let _alone = alone();
        let mut command: Command = urxe();
        command
            .args(["run", "--device", &addresses().0.to_string(), "--"])
            .arg(self.launcher)
            .args(self.options)
            .args(["-n", processes, &program.binary])
            .env("UCX_TLS", "rc_verbs,ud_verbs:aux,self")
            .env("UCX_NET_DEVICES", "urxe0:1")
            // MPICH's processes of one host would use memory that they share.
            .env("MPIR_CVAR_NOLOCAL", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        Some(run(command))
    }
}

#[test]
fn mpich_and_open_mpi_send_round_a_ring() {
    for (kind, processes) in [(MPICH, "2"), (MPICH, "3"), (OPEN_MPI, "2"), (OPEN_MPI, "3")] {
        let Some(ran) = kind.run("abi/ring.c", processes) else {
            continue;
        };
        let told = format!("{} of {processes}: {}", kind.launcher, ran.text);
        assert_eq!(ran.code, Some(0), "{told}");
        assert!(ran.text.contains("all sums are right"), "{told}");
    }
}

/// Debian's Open MPI 4.1.4 crashes in `shmem_finalize`, over TCP too; so what counts is what it said before.
#[test]
fn open_shmem_puts_and_gets_and_counts() {
    for processes in ["2", "4"] {
        let Some(ran) = OPEN_SHMEM.run("abi/shmem.c", processes) else {
            return;
        };
        assert!(
            ran.text.contains("all came back"),
            "{processes}: {}",
            ran.text
        );
    }
}
