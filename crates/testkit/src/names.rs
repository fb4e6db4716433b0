//! Names of locks that are hard to show, to pass on, or to tell from each other.

/// Names that mean something to a terminal, a shell, a URL, JSON or a path, and the longest ones.
pub fn odd() -> Vec<String> {
    let odd = [
        "nightly/backup",
        "a/../b",
        "..",
        ".",
        "/",
        "//",
        "a%2Fb",
        "100%",
        "a?b#c&d=e",
        "a b",
        "a+b",
        "\0",
        "a\0b\nc\td",
        "line\r\nbreak",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{7f}",
        "\u{9b}31m",
        "\u{202e}txt.exe",
        "\u{2028}",
        "\"quoted\"\\",
        "é",
        "日本語",
        "🔒",
        "{name}",
        "*",
        "-json",
    ];
    let long = ["x".repeat(255), "é".repeat(127)];
    odd.map(str::to_owned).into_iter().chain(long).collect()
}

/// Those of them that can stand in an argument: all without NUL.
pub fn odd_arguments() -> Vec<String> {
    odd().into_iter().filter(|name| !name.contains('\0')).collect()
}

/// What a terminal may obey.
pub fn is_raw(c: char) -> bool {
    c.is_control() && c != '\n' || ('\u{2028}'..='\u{202e}').contains(&c)
}
