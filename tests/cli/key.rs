//! `urxe key`, and the key files that commands take.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::harness::{run, urxe};

#[test]
fn a_key_is_made_shown_rotated_and_kept_from_others() {
    let path = std::env::temp_dir().join(format!("urxe-cli-key-{}", std::process::id()));
    let file = path.to_str().expect("a plain name");
    let made = run(urxe().args(["key", "new", file]))
        .expect_success()
        .stdout;
    let mode = || {
        fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(), 0o600);
    let text = fs::read_to_string(&path).expect("it is ours");
    let secret = text.trim().rsplit(' ').next().expect("a secret").to_owned();
    assert_eq!(secret.len(), 64);
    let shown = run(urxe().args(["key", "show-id", file]))
        .expect_success()
        .stdout;
    assert_eq!(shown, made);
    let id = text.split_ascii_whitespace().nth(2).expect("a number");
    assert!(
        shown.starts_with(&format!("key {id}\nepoch 1 ")) && shown.contains("in use"),
        "{shown}"
    );
    let again = run(urxe().args(["key", "new", file]));
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("exists"), "{}", again.stderr);
    let rotated = run(urxe().args(["key", "rotate", file, "--after", "90"]))
        .expect_success()
        .stdout;
    assert!(
        rotated.contains("epoch 2 ") && rotated.contains("in use in "),
        "{rotated}"
    );
    assert_eq!(mode(), 0o600);
    let all = [&made, &shown, &rotated, &again.stderr]
        .map(String::as_str)
        .concat();
    assert!(!all.contains(&secret[..16]), "the secret is shown");

    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("it is ours");
    for args in [
        &["key", "show-id", file][..],
        &["key", "rotate", file],
        &["decode", "--key-file", file, file],
    ] {
        let refused = run(urxe().args(args));
        assert_eq!(refused.code, Some(1), "{args:?}");
        assert!(
            refused.stderr.contains("its mode is 644"),
            "{}",
            refused.stderr
        );
        assert!(!refused.stderr.contains(&secret[..16]));
    }
    fs::remove_file(&path).expect("it is ours");
    let gone = run(urxe().args(["key", "show-id", file]));
    assert!(gone.stderr.contains("No such file"), "{}", gone.stderr);
}
