//! Where cargo puts the program under test.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::Path;
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
    let path = match env::var_os(VARIABLE) {
        Some(path) => path.into(),
        None => {
            let test = env::current_exe().expect("a test knows its own program");
            let profile = test.ancestors().nth(2).expect("a test's program is in a folder of a profile");
            profile.join("monolock")
        }
    };
    assert!(
        path.is_file(),
        "there is no program to test at {}: build it with `cargo build -p monolock`",
        path.display()
    );
    path.into_os_string().into_string().expect("the path of the program is text")
}
