//! Where cargo puts the program under test.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fmt};

/// The program under test. It is looked for when it is first used.
pub const MONOLOCK: Program = Program;

/// Cargo names the program in this variable, for the tests of the package that has it.
const VARIABLE: &str = "CARGO_BIN_EXE_monolock";

static PATH: LazyLock<String> = LazyLock::new(find);

/// The path of a program that is built.
#[derive(Debug, Clone, Copy)]
pub struct Program;

impl Deref for Program {
    type Target = str;

    /// # Panics
    ///
    /// The program is not there.
    fn deref(&self) -> &str {
        &PATH
    }
}

impl AsRef<OsStr> for Program {
    fn as_ref(&self) -> &OsStr {
        PATH.as_ref()
    }
}

impl AsRef<Path> for Program {
    fn as_ref(&self) -> &Path {
        PATH.as_ref()
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// As cargo says, or beside the folder of the test's own program: `target/debug/deps/server-…` is a test of
/// `target/debug/monolock`.
fn find() -> String {
    let said = env::var_os(VARIABLE).map(PathBuf::from);
    let path = said.unwrap_or_else(|| beside(&env::current_exe().expect("a test knows its own program")));
    checked(&path).to_owned()
}

fn beside(test: &Path) -> PathBuf {
    test.ancestors().nth(2).expect("a test's program is in a folder of a profile").join("monolock")
}

fn checked(path: &Path) -> &str {
    let remedy = "build it with `cargo build -p monolock`";
    assert!(path.is_file(), "there is no program to test at {}: {remedy}", path.display());
    path.to_str().expect("the path of the program is text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_beside_the_folder_of_the_tests() {
        let found = beside(Path::new("/w/target/debug/deps/server-0a1b"));
        assert_eq!(found, Path::new("/w/target/debug/monolock"));
    }

    #[test]
    #[should_panic(expected = "there is no program to test at /nonexistent/monolock: build it with")]
    fn a_program_that_is_not_there_is_named_with_the_remedy() {
        checked(Path::new("/nonexistent/monolock"));
    }
}
