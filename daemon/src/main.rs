//! monolock.
fn main() {}
