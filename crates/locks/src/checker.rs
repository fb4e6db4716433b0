//! Checks what was observed of locks against the promises.
