# Short names for the commands that the documents use. `just` is optional.

# list the recipes
default:
    @just --list

# everything that has to pass before a change goes in
ci:
    tests/run

# the two commands of the README
pingpong *ARGS:
    cargo run --release -- pingpong {{ARGS}}

test:
    tests/run

# how many rules and tests there are, by family
families:
    cargo test -p urxe-tests --test conformance -- --nocapture

# random programs with fresh seeds
soak SECONDS="3600":
    tests/soak {{SECONDS}}

# the quick part of the checks, for the inner loop
check:
    cargo fmt --all -- --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test --workspace

# the tables of docs/PERFORMANCE.md
measure:
    tests/measure

bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# fuzz every target for SECONDS each
fuzz SECONDS="60":
    fuzz/run {{SECONDS}}

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
