//! Tells the program which commit it was built from.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = commit().unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=MONOLOCK_COMMIT={commit}");
}

/// The commit that is checked out; `None` in an unpacked tarball, also when that lies inside of another
/// repository.
fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    if !root.join(".git").exists() {
        return None;
    }
    // Grows with every commit and every checkout.
    let log = git(root, &["rev-parse", "--git-path", "logs/HEAD"])?;
    if root.join(&log).exists() {
        println!("cargo::rerun-if-changed={}", root.join(log).display());
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
