//! `release/action`, the shell part of the GitHub Action, with a runner's environment files that are the test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{library, program, urxe};

/// A runner's folder with the package in it. Removed with the value.
struct Runner(PathBuf);

const FILES: [&str; 3] = ["GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT"];

impl Runner {
    fn new(name: &str) -> Runner {
        let folder = std::env::temp_dir().join(format!("urxe-{name}-{}", std::process::id()));
        let (bin, lib) = (folder.join("stage/bin"), folder.join("stage/lib/urxe"));
        for folder in [&bin, &lib] {
            fs::create_dir_all(folder).expect("a folder");
        }
        for file in FILES {
            fs::write(folder.join(file), "").expect("a file");
        }
        let copy = |from: &str, to: PathBuf| fs::copy(library().join(from), to).expect(from);
        copy("../urxe", bin.join("urxe"));
        for file in ["libibverbs.so.1", "liburxe_preload.so"] {
            copy(file, lib.join(file));
        }
        let mut tar = Command::new("tar");
        tar.args(["-czf", "urxe.tar.gz", "stage"])
            .current_dir(&folder);
        assert!(tar.status().expect("tar runs").success());
        Runner(folder)
    }

    fn act(&self, inputs: &[(&str, &str)]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../release/action");
        let mut command = Command::new(script);
        for file in FILES {
            command.env(file, self.0.join(file));
        }
        command
            .env("RUNNER_TEMP", &self.0)
            .env("INPUT_PACKAGE", self.0.join("urxe.tar.gz"))
            .envs(
                inputs
                    .iter()
                    .map(|(name, value)| (format!("INPUT_{name}"), value)),
            );
        command.output().expect("there is bash")
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).expect(file)
    }

    /// A later step of the job.
    fn step(&self, script: &str) -> Output {
        let path = self.read("GITHUB_PATH");
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]);
        command.env_clear().current_dir("/");
        command.env("PATH", format!("{}:/usr/bin:/bin", path.trim_end()));
        let environment = self.read("GITHUB_ENV");
        command.envs(environment.lines().filter_map(|line| line.split_once('=')));
        command.output().expect("there is bash")
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // A job's device files stay; these are the test's.
        let environment = fs::read_to_string(self.0.join(FILES[0])).unwrap_or_default();
        let mut lines = environment.lines();
        if let Some(root) = lines.find_map(|line| line.strip_prefix("URXE_ROOT=")) {
            let _ = fs::remove_dir_all(root);
        }
        // A test that failed has more to say than this.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

#[test]
fn later_steps_see_urxe_and_nothing_else() {
    let runner = Runner::new("action");
    let inputs = [
        ("DEVICES", "mine=127.92.0.1"),
        ("STRICT", "true"),
        ("PCAP", "true"),
    ];
    let acted = runner.act(&inputs);
    assert!(acted.status.success(), "{}", text(&acted));

    // The device files are led to the job's own, whatever adapters the runner has.
    let seen = runner.step("ls /sys/class/infiniband; urxe --version; echo $URXE_STRICT");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(text(&seen), format!("mine\nurxe {version}\n1\n"));

    if program("ibv_devinfo", "ibverbs-utils", [127, 92, 0, 1]).is_none() {
        return;
    }
    // Steps that follow one another, after the process that asked for the device files has ended.
    for _ in 0..2 {
        let seen = runner.step("ibv_devinfo");
        let said = text(&seen);
        assert!(
            seen.status.success() && said.contains("hca_id:\tmine"),
            "{said}"
        );
    }
    let captures = runner.read("GITHUB_OUTPUT");
    let captures = captures
        .trim_end()
        .strip_prefix("captures=")
        .expect("it is an output");
    assert_eq!(fs::read_dir(captures).expect("a folder").count(), 2);
}

#[test]
fn what_cannot_be_done_is_an_error_of_the_step() {
    let runner = Runner::new("action-errors");
    for (input, value, said) in [
        ("STRICT", "maybe", "strict is true or false, not maybe"),
        ("FAULTS", "nonsense=1", "nonsense"),
        (
            "PACKAGE",
            "/nowhere.tar.gz",
            "there is no file /nowhere.tar.gz",
        ),
        ("PACKAGE", "/etc/passwd", "/etc/passwd cannot be unpacked"),
        ("DEVICES", "nowhere0", "nowhere0"),
    ] {
        let acted = runner.act(&[(input, value)]);
        let told = text(&acted);
        assert!(!acted.status.success() && told.contains(said), "{told}");
        assert!(told.contains("::error title=urxe::"), "{told}");
        assert_eq!(runner.read("GITHUB_ENV"), "", "{input}");
    }
}

#[test]
fn the_environment_comes_in_three_forms() {
    let ask = |format: &str| {
        let mut command = urxe();
        command.args([
            "env",
            "--no-preload",
            "--device",
            "127.92.0.2",
            "--format",
            format,
        ]);
        command.env("LD_LIBRARY_PATH", "/it's here");
        text(&command.output().expect("it runs"))
    };
    let lines = ask("lines");
    let lines: Vec<(&str, &str)> = lines.lines().filter_map(|l| l.split_once('=')).collect();
    assert!(
        lines
            .iter()
            .any(|(name, value)| *name == "LD_LIBRARY_PATH" && value.ends_with(":/it's here"))
    );
    assert!(lines.contains(&("URXE_DEVICES", "127.92.0.2")), "{lines:?}");
    let json: std::collections::HashMap<String, String> =
        serde_json::from_str(&ask("json")).expect("JSON");
    let shell = format!("{}\nenv", ask("shell"));
    let shell = Command::new("sh").args(["-c", &shell]).env_clear().output();
    let shell = text(&shell.expect("there is a shell"));
    for (name, value) in &lines {
        assert_eq!(json.get(*name).map(String::as_str), Some(*value));
        let line = format!("{name}={value}");
        assert!(shell.lines().any(|said| said == line), "{line}: {shell}");
    }
    assert_eq!(json.len(), lines.len());
}
