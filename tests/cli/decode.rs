//! `urxe decode` on captures of the kernel's soft-RoCE, whole and damaged.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use crate::harness::{project_file, run, urxe};

fn captures() -> Vec<PathBuf> {
    let folder =
        std::fs::read_dir(project_file("wire/tests/captures")).expect("committed captures");
    let paths = folder.map(|entry| entry.expect("listed").path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|ext| ext == "pcap"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no captures");
    paths
}

fn capture(name: &str) -> Vec<u8> {
    let path = project_file("wire/tests/captures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file under the temporary folder, removed with the value.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, bytes: &[u8]) -> TempFile {
        let path = std::env::temp_dir().join(format!("urxe-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("the temporary folder takes files");
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Leaving it behind does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_packet_of_the_kernels_captures_is_sound() {
    for path in captures() {
        // One packet of this capture has a wrong ICRC on purpose.
        if path.ends_with("interop_ud.pcap") {
            continue;
        }
        let ran = run(urxe().arg("decode").arg(&path));
        assert_eq!(
            ran.code,
            Some(0),
            "{}: {}{}",
            path.display(),
            ran.stdout,
            ran.stderr
        );
        let summary = ran.stdout.lines().last().expect("a summary");
        assert!(
            summary.contains(" 0 ICRC bad"),
            "{}: {summary}",
            path.display()
        );
    }
}

#[test]
fn a_line_shows_number_time_addresses_and_operation() {
    let ran = run(urxe()
        .arg("decode")
        .arg(project_file("wire/tests/captures/rc_send.pcap")));
    let line = ran
        .expect_success()
        .stdout
        .lines()
        .next()
        .map(str::to_owned);
    let line = line.expect("packets");
    for part in ["10.77.0.3", "10.77.0.2", "RC SEND First", "PSN", "icrc ok"] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn a_flipped_bit_is_a_bad_icrc_and_exit_1() {
    let mut bytes = capture("rc_send.pcap");
    // The last byte before the end of the first frame's ICRC: 24 + 16 bytes of headers in front of it.
    let len = u32::from_le_bytes(bytes[32..36].try_into().expect("four bytes")) as usize;
    bytes[40 + len - 6] ^= 1;
    let file = TempFile::new("flipped.pcap", &bytes);
    let ran = run(urxe().arg("decode").arg(&file.0));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stdout
            .lines()
            .next()
            .is_some_and(|line| line.contains("ICRC BAD")),
        "{ran:?}"
    );
    assert!(ran.stdout.contains(" 1 ICRC bad"), "{ran:?}");
}

#[test]
fn quiet_prints_the_summary_only() {
    let path = project_file("wire/tests/captures/rc_send.pcap");
    let ran = run(urxe().args(["decode", "--quiet"]).arg(path)).expect_success();
    assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
}

#[test]
fn standard_input_is_read() {
    let mut child = urxe()
        .args(["decode", "-q", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("urxe starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(&capture("rc_read.pcap")).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains(" 0 ICRC bad"));
}

#[test]
fn missing_empty_and_foreign_files_are_clear_errors() {
    let ran = run(urxe().args(["decode", "/no/such/file.pcap"]));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.starts_with("urxe: /no/such/file.pcap: "),
        "{}",
        ran.stderr
    );
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("elf", b"\x7fELF\x02\x01\x01\0\0\0\0\0"),
    ] {
        let file = TempFile::new(name, bytes);
        let ran = run(urxe().arg("decode").arg(&file.0));
        assert_eq!(ran.code, Some(1), "{name}");
        assert!(
            ran.stderr.contains("not a pcap or pcapng file"),
            "{name}: {}",
            ran.stderr
        );
    }
}

#[test]
fn a_cut_file_is_an_error_after_its_whole_packets() {
    let bytes = capture("rc_send.pcap");
    let file = TempFile::new("cut.pcap", &bytes[..bytes.len() - 1]);
    let ran = run(urxe().arg("decode").arg(&file.0));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("the file ends within the record"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains(" 0 ICRC bad"), "{}", ran.stdout);
}

#[test]
fn damaged_files_never_make_it_panic() {
    let bytes = capture("rc_read.pcap");
    for index in (0..bytes.len()).step_by(37) {
        let mut damaged = bytes.clone();
        damaged[index] ^= 0xff;
        let file = TempFile::new("damaged.pcap", &damaged);
        let ran = run(urxe().args(["decode", "-q"]).arg(&file.0));
        assert!(matches!(ran.code, Some(0 | 1)), "byte {index}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "byte {index}: {ran:?}");
    }
}
