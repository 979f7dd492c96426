//! Opening a context where the system sets narrow limits.

use std::process::Command;

use crate::common;
use urxe::Context;

/// Says to this test binary, started again, where it is to open contexts.
const AT: &str = "URXE_TEST_LIMITED_AT";

/// Not a test by itself: a process with a limit of file sizes.
#[test]
fn limited_process() {
    let Ok(addr) = std::env::var(AT) else {
        println!("skipped: this is what another test starts");
        return;
    };
    let addr = addr.parse().expect("an address");
    // It has the address for itself.
    let alone = Context::open(addr).expect("free");
    let refused = Context::open(addr).expect_err("there is no registry");
    println!("\nlimited: {refused}");
    drop(alone);
}

#[test]
fn a_limit_of_file_sizes_is_an_error_in_words_and_not_the_end() {
    let program = std::env::current_exe().expect("this test binary");
    // Blocks of 512 bytes, or of 1024 where the shell counts so.
    let line = "ulimit -f 32; exec \"$0\" sharing_limits::limited_process --exact --nocapture";
    let output = Command::new("sh")
        .args(["-c", line])
        .arg(program)
        .env(AT, common::address().to_string())
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{} {text}", output.status);
    let said = text.lines().find(|line| line.starts_with("limited: "));
    let said = said.expect("it says why");
    assert!(
        said.contains("ulimit -f") && said.contains("cannot be shared"),
        "{said}"
    );
}
