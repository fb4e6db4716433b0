//! What the peer is told: the server's answer as it is, or `gone`, or nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ha::message::{Answer, Ask, Request, Verdict};
use ha::term::Term;
use logging::escape::escaped;
use logging::seldom::Seldom;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use threads::{NotDone, Workers};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout_at};
use tracing::{Level, info, warn};

use crate::servers::{Servers, Unanswered};
use crate::state::{Silence, State};

/// How long a server has to confirm that it has closed.
const CONFIRM_TIME_MAX: Duration = Duration::from_millis(200);

/// How long an answer may take. The peer waits for a second, the connection's set-up included.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(950);

/// Between two looks whether a process has exited, a lock is free, or a port.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How often silence is explained. The peer asks every second.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Answers the peer.
#[derive(Debug, Clone)]
pub(crate) struct Desk(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    servers: Servers,
    state: State,
    /// May wait for a disk.
    disk: Workers,
    /// Held by the request that kills, locks and stores: one at a time.
    turn: Mutex<()>,
    silent: Seldom,
    silent_at_close: Seldom,
    closed: Notify,
}

impl Desk {
    pub(crate) fn new(servers: Servers, state: State, disk: Workers) -> Self {
        let seldom = |name| Seldom::new(name, Level::WARN, WARN_INTERVAL);
        Self(Arc::new(Parts {
            servers,
            state,
            disk,
            turn: Mutex::default(),
            silent: seldom("the peer got no answer"),
            silent_at_close: seldom("the peer asked to close and got no answer"),
            closed: Notify::new(),
        }))
    }

    /// Returns once the peer has been told that this node is closed or gone.
    pub(crate) async fn has_closed(&self) {
        self.0.closed.notified().await;
    }

    /// The answer to a request of the peer, or why there is none, for the other side's log.
    pub(crate) async fn answer(self, raw: Box<RawValue>) -> Result<Box<RawValue>, String> {
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        // What this version does not understand may be a newer server's matter, and kills nobody.
        let request = serde_json::from_str::<Request>(raw.get()).ok();
        let is_close = matches!(&request, Some(Request { ask: Ask::Close { .. }, .. }));
        let asked = request.as_ref().map(|request| format!("{:?}", request.ask));
        let answering = async {
            match request {
                Some(request) if is_close => self.close(&raw, request, deadline).await,
                request => self.pass_on(&raw, request, deadline).await,
            }
        };
        // Whatever is waited for: a disk that hangs, above all.
        let answer = timeout_at(deadline.into(), answering).await;
        let answer = answer.unwrap_or_else(|_| Err("there was no answer in time".into()));
        if is_close && answer.as_ref().is_ok_and(|answer| says_closed(answer)) {
            self.0.closed.notify_one();
        }
        let seldom = if is_close { &self.0.silent_at_close } else { &self.0.silent };
        if let Err(why) = &answer
            && seldom.may_log()
        {
            warn!(why = escaped(why), asked, "the peer gets no answer");
        }
        answer
    }

    /// A question that closes nothing: the server's answer, or the disk's where there is no server.
    async fn pass_on(
        &self,
        raw: &RawValue,
        request: Option<Request>,
        deadline: Instant,
    ) -> Result<Box<RawValue>, String> {
        match self.0.servers.ask(raw, deadline - Instant::now()).await {
            Ok(answer) => return Ok(answer),
            Err(Unanswered::Silent) => return Err("the server is connected and does not answer".into()),
            Err(Unanswered::Away) => {}
        }
        let request = request.ok_or("no server is connected, and the agent does not understand it")?;
        if let Some(process) = self.0.servers.living().first() {
            return Err(format!("the server is not connected, and process {} lives", process.id()));
        }
        self.disk_answer(&request).await.map_err(|silence| silence.to_string())
    }

    /// The server confirms or refuses; or it is gone for certain, if need be by our hand; or nothing is said.
    async fn close(
        &self,
        raw: &RawValue,
        request: Request,
        deadline: Instant,
    ) -> Result<Box<RawValue>, String> {
        let servers = &self.0.servers;
        let is_weak = matches!(request.ask, Ask::Close { weak: true, .. });
        let started = Instant::now();
        let mut may_kill = false;
        let mut why = String::new();
        while Instant::now() + LOOK_EVERY < deadline {
            if !may_kill {
                let time_max = if is_weak { deadline - Instant::now() } else { CONFIRM_TIME_MAX };
                match servers.ask(raw, time_max).await {
                    Ok(answer) => return Ok(answer),
                    Err(Unanswered::Silent) if is_weak => {
                        return Err(
                            "the server is connected and does not answer; asked weakly, it is not killed"
                                .into(),
                        );
                    }
                    Err(Unanswered::Silent) => may_kill = true,
                    // It may be about to connect again.
                    Err(Unanswered::Away) => may_kill = !is_weak && started.elapsed() >= CONFIRM_TIME_MAX,
                }
            }
            let living = servers.living();
            if living.is_empty() {
                let _turn = self.0.turn.lock().await;
                match self.disk_answer(&request).await {
                    Ok(answer) => return Ok(answer),
                    Err(Silence::Lasting(why)) => return Err(why),
                    Err(Silence::ForNow(now)) => why = now,
                }
            } else {
                why = format!("process {} has not exited", living[0].id());
                if may_kill {
                    self.kill(&request).await?;
                    // One that connects now is another one.
                    may_kill = false;
                }
            }
            servers.change(LOOK_EVERY).await;
        }
        Err(why)
    }

    /// Kills what is left of servers, for a request that would not be refused afterwards.
    async fn kill(&self, request: &Request) -> Result<(), String> {
        let _turn = self.0.turn.lock().await;
        let (state, asked) = (self.0.state.clone(), request.clone());
        let may_kill = self.0.disk.run(move || state.may_kill_for(&asked)).await;
        may_kill.map_err(|error| error.to_string())?.map_err(|silence| silence.to_string())?;
        for process in self.0.servers.living() {
            process.kill().map_err(|error| format!("process {} cannot be killed: {error}", process.id()))?;
            warn!(
                process = process.id(),
                "killed the server: the peer has asked it to close, and it has not confirmed in time"
            );
            while !process.has_exited() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }

    async fn disk_answer(&self, request: &Request) -> Result<Box<RawValue>, Silence> {
        let (state, last, asked) = (self.0.state.clone(), self.0.servers.last(), request.clone());
        let answer = self.0.disk.run(move || state.answer(&asked, &last)).await;
        let answer = answer.map_err(|error: NotDone| Silence::Lasting(error.to_string()))??;
        if let Verdict::GoneFor(term) = &answer.said.verdict {
            info!(%term, ceiling = answer.said.ceiling.0, "no server is left here, and this term is promised");
        }
        Ok(to_raw_value::<Answer>(&answer).expect("an answer is plain data"))
    }
}

/// Whether an answer ends what the peer wants of this node.
fn says_closed(answer: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Closed {
        verdict: Only,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Only {
        ClosedFor(#[allow(dead_code)] Term),
        GoneFor(#[allow(dead_code)] Term),
    }
    serde_json::from_str::<Closed>(answer.get())
        .is_ok_and(|closed| matches!(closed.verdict, Only::ClosedFor(_) | Only::GoneFor(_)))
}
