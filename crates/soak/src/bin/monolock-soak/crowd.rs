//! The client processes: each in its place, replaced when it is gone.

use std::env;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use soak::logs::entry::{Act, ClientId};
use testkit::process;

use crate::acts::Acts;
use crate::options::Options;

/// All clients; killed when dropped.
pub(super) struct Crowd<'a> {
    options: &'a Options,
    dir: &'a Path,
    address: SocketAddr,
    seed: u64,
    clients: Vec<Client>,
}

struct Client {
    id: ClientId,
    child: Child,
}

impl<'a> Crowd<'a> {
    pub(super) fn start(
        options: &'a Options,
        dir: &'a Path,
        address: SocketAddr,
        seed: u64,
        acts: &Acts,
    ) -> Result<Self> {
        let mut crowd = Self { options, dir, address, seed, clients: Vec::new() };
        for place in 0..options.clients {
            let client = crowd.spawn(ClientId { place, generation: 0 }, acts)?;
            crowd.clients.push(client);
        }
        Ok(crowd)
    }

    /// Replaces who is gone.
    pub(super) fn replace(&mut self, acts: &Acts) -> Result<()> {
        for at in 0..self.clients.len() {
            let Some(status) = self.clients[at].child.try_wait()? else { continue };
            let ClientId { place, generation } = self.clients[at].id;
            // By a signal, or with a full log. What else a client meets is an error of the tool.
            ensure!(
                status.code().is_none_or(|code| code == 0),
                "client {place}.{generation} failed: {status}"
            );
            self.clients[at] = self.spawn(ClientId { place, generation: generation + 1 }, acts)?;
        }
        Ok(())
    }

    /// Sends a signal to whoever is in this place, if it lives. Its number is its own until it is replaced.
    pub(super) fn signal(&mut self, place: u32, signal: Signal, acts: &Acts) -> Result<()> {
        let client = &mut self.clients[usize::try_from(place)?];
        if client.child.try_wait()?.is_some() {
            return Ok(());
        }
        acts.note(match signal {
            Signal::KILL => Act::Kill(client.id),
            Signal::STOP => Act::Stop(client.id),
            _ => Act::Continue(client.id),
        })?;
        kill_process(Pid::from_child(&client.child), signal).context("signalling a client")
    }

    fn spawn(&self, id: ClientId, acts: &Acts) -> Result<Client> {
        acts.note(Act::Spawn(id))?;
        let own_seed = self.seed ^ (u64::from(id.place) << 32 | u64::from(id.generation));
        let mut command = process::tied(&env::current_exe()?, None)?;
        command.arg("client").arg("--dir").arg(self.dir);
        command.args(["--address", &self.address.to_string(), "--client", &id.to_string()]);
        command.args(["--seed", &own_seed.to_string(), "--locks", &self.options.locks.to_string()]);
        command.args(["--lease-min", &format!("{}ms", self.options.lease_min.as_millis())]);
        command.args(["--lease-max", &format!("{}ms", self.options.lease_max.as_millis())]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Client { id, child: command.spawn().context("starting a client")? })
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        self.clients.iter_mut().for_each(|client| process::end(&mut client.child));
    }
}
