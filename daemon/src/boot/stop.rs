//! The shutdown, in the order that promotes nobody and tells every client.

use std::time::Duration;

use tracing::info;

use super::start::Running;

/// How long the ops endpoints outlast the last session, so that a load balancer sees their 503.
const OPS_OUTLAST: Duration = Duration::from_secs(1);

/// How long shutdown waits for the audit log's disk.
const AUDIT_FLUSH_MAX: Duration = Duration::from_secs(1);

impl Running {
    /// Closes the gate first, so that no session that is then ended promotes a waiter.
    pub(super) async fn stop(self) {
        self.state.set_shutting_down();
        self.reloads.abort();
        if let Some(node) = &self.node {
            node.node.stop().await;
        }
        self.gate.shut_down();
        self.shards.wake();
        self.intake.stop().await;
        self.shards.ended().await;
        info!("every session is ended");
        let flush = async {
            if let Some(audit) = self.audit {
                audit.finish(AUDIT_FLUSH_MAX).await;
            }
        };
        let outlast = tokio::time::sleep(if self.has_ops { OPS_OUTLAST } else { Duration::ZERO });
        tokio::join!(flush, outlast);
    }
}
