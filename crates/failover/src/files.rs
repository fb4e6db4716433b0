//! The files of `deploy/`, as a lab's nodes use them: the paths are the node's own, and the text is the same.

use std::path::Path;

/// Both configurations of keepalived, and what belongs to ours.
pub(crate) const CUSTOMERS: &str = include_str!("../../../deploy/keepalived/customer.conf");
pub(crate) const OURS: &str = include_str!("../../../deploy/keepalived/keepalived.conf");
pub(crate) const NOTIFY: &str = include_str!("../../../deploy/keepalived/monolock-notify");
pub(crate) const DROP_IN: &str =
    include_str!("../../../deploy/keepalived/keepalived.service.d/monolock.conf");
/// The proxy's.
pub(crate) const PROXY: &str = include_str!("../../../deploy/haproxy/haproxy.cfg");

/// A file as the node has it. `programs` has `monolock` and `monolock-notify`.
pub(crate) fn at_node(text: &str, run: &Path, programs: &Path, priority: u32) -> String {
    text.replace("/usr/bin/monolock", &programs.join("monolock").display().to_string())
        .replace("/usr/libexec/monolock/", &format!("{}/", programs.display()))
        .replace(" /run/", &format!(" {}/", run.display()))
        .replace("unix:/run/", &format!("unix:{}/", run.display()))
        .replace("priority 100", &format!("priority {priority}"))
}

/// What systemd runs when keepalived has ended.
pub(crate) fn stop_post() -> &'static str {
    let line = DROP_IN.lines().find_map(|line| line.strip_prefix("ExecStopPost=-"));
    line.expect("the drop-in removes the address")
}
