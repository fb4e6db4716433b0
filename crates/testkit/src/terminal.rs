//! A terminal: what a command shows on it, as a person reads it.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::{Winsize, openpty};
use rustix::io::{FdFlags, fcntl_setfd};
use vt100::Parser;

use crate::patience::wait_for;

/// A command on a terminal of its own; killed when dropped.
pub struct Terminal {
    /// The command.
    pub child: Child,
    keyboard: File,
    screen: Arc<Mutex<Parser>>,
}

impl Terminal {
    /// Starts a command on a terminal of this size and kind.
    pub fn start(mut command: Command, rows: u16, columns: u16, term: &str) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).expect("a terminal");
        // Who holds the other end keeps the terminal from being hung up.
        for end in [&pty.master, &pty.slave] {
            fcntl_setfd(end, FdFlags::CLOEXEC).unwrap();
        }
        let sized = |size| NonZeroU16::new(size).expect("a terminal has a size");
        let screen = Arc::new(Mutex::new(Parser::new(sized(rows), sized(columns), 0)));
        let shown = Arc::clone(&screen);
        let mut master = File::from(pty.master);
        let keyboard = master.try_clone().unwrap();
        let slave: OwnedFd = pty.slave;
        let child = command
            .env("TERM", term)
            .stdin(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap())
            .stdout(slave)
            .spawn()
            .expect("the program starts");
        // It keeps our copies of what it gave the child.
        drop(command);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of a terminal is an error: EIO.
            while let Ok(len @ 1..) = master.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..len]);
            }
        });
        Self { child, keyboard, screen }
    }

    /// Types on the keyboard.
    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// What is on the screen now.
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until there is some text on the screen.
    pub fn has(&self, what: &str) {
        let mut last = String::new();
        wait_for(&format!("{what:?} on the screen"), || {
            let text = self.text();
            if text != last {
                println!("screen:\n{text}\n");
                last.clone_from(&text);
            }
            text.contains(what).then_some(())
        });
    }

    /// Waits until the whole screen is as expected, written to its end: its text. A frame may come in parts.
    pub fn shows(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        wait_for(what, || {
            let (text, cursor_row) = {
                let parser = self.screen.lock().unwrap();
                (parser.screen().contents(), usize::from(parser.screen().cursor_position().0))
            };
            if text != last {
                println!("screen, cursor in row {cursor_row}:\n{text}\n");
                last.clone_from(&text);
            }
            (cursor_row >= text.lines().count() && is_so(&text)).then_some(text)
        })
    }

    /// Waits until the command has ended.
    pub fn exit(&mut self) -> std::process::ExitStatus {
        wait_for("the command to end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
