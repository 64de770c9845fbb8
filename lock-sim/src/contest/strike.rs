//! How a fault happens on the stage, and how it is over.

use super::{
    Stage,
    faults::{Fault, Own, fact},
};
use crate::{
    MS,
    redis::Loses,
    world::{HostId, ServerId, Way},
};

impl Stage {
    /// Has a fault happen, and be over when its time has passed.
    pub fn strike(&mut self, fault: Fault) {
        // A server that is down is not stopped a second time: the end of either restart would start it for both, and it would
        // lose what the other one was to lose.
        if matches!(fault, Fault::Restart(server, ..) if self.world.is_stopped(server)) {
            return;
        }
        self.oracle.note("world", format_args!("{fault:?}"));
        let heals = |length| Some(length);
        self.server_stood_still |= matches!(fault, Fault::PauseServer(..) | Fault::Restart(..));
        self.is_lasting |= matches!(fault, Fault::PauseServer(_, length) if length > self.most_pause);
        self.was_cut_off |= matches!(
            fault,
            Fault::Pause(..) | Fault::Block(..) | Fault::PauseServer(..) | Fault::Restart(..) | Fault::Storm(_)
        );
        let (kind, length) = match fault {
            Fault::Pause(host, length) => {
                self.world.pause_host(host);
                self.oracle.stands_still(host);
                (fact::PAUSED, heals(length))
            }
            Fault::Kill(host, stop) => {
                self.world.kill_host(host, stop);
                self.oracle.died(host);
                (fact::KILLED, None)
            }
            Fault::Block(host, server, ways, length) => {
                self.block(host, server, ways, true);
                (fact::BLOCKED, heals(length))
            }
            Fault::Reset(server) | Fault::BreakOff(server) => {
                for connection in self.world.connections() {
                    if self.world.ends_of(connection).1 != server || self.world.chance().one_in(4) {
                        continue;
                    }
                    match fault {
                        Fault::Reset(_) => self.world.reset(connection),
                        _ => self.world.break_off(connection),
                    }
                }
                (fact::RESET, None)
            }
            Fault::PauseServer(server, length) => {
                self.world.pause_server(server);
                (fact::SERVER_PAUSED, heals(length))
            }
            Fault::Restart(server, stop, loses, length) => {
                self.fleet.stop(&mut self.world, server, stop);
                if loses != Loses::Nothing {
                    self.oracle.count(fact::LOST_DATA);
                }
                (fact::RESTARTED, heals(length))
            }
            Fault::Save(server) => return self.fleet.save(server),
            Fault::Jump(host, by) => {
                self.world.jump(host, by);
                (fact::JUMPED, None)
            }
            Fault::Storm(length) => {
                self.world.set_wires(|wires| {
                    wires.lost_per_mille = 300;
                    wires.late_per_mille = 200;
                });
                (fact::STORM, heals(length))
            }
        };
        self.oracle.count(kind);
        if let Some(length) = length {
            self.world.after(length, Own::Heal(fault));
        }
    }

    pub(super) fn heal(&mut self, fault: Fault) {
        match fault {
            Fault::Pause(host, _) => {
                self.world.resume_host(host);
                self.oracle.stands_still(host);
            }
            Fault::Block(host, server, ways, _) => self.block(host, server, ways, false),
            Fault::PauseServer(server, _) => self.world.resume_server(server),
            Fault::Restart(server, _, loses, _) => self.fleet.start(&mut self.world, server, loses),
            Fault::Storm(_) => {
                let usual = self.wires;
                self.world.set_wires(|wires| *wires = usual);
            }
            Fault::Kill(..) | Fault::Reset(_) | Fault::BreakOff(_) | Fault::Save(_) | Fault::Jump(..) => return,
        }
        self.oracle.note("world", format_args!("is over: {fault:?}"));
    }

    fn block(&mut self, host: HostId, server: ServerId, ways: [bool; 2], is_blocked: bool) {
        for (way, _) in [Way::Up, Way::Down].into_iter().zip(ways).filter(|(_, is_meant)| *is_meant) {
            self.world.block(host, server, way, is_blocked);
        }
    }

    /// Everything goes well from now on. What was begun heals at its time, but soon.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        self.oracle.note("world", format_args!("is calm"));
        for host in self.clients.clone() {
            self.world.resume_host(host);
            self.oracle.stands_still(host);
        }
        for host in self.clients.clone().into_iter().chain([self.operator]) {
            for server in self.servers.clone() {
                self.block(host, server, [true; 2], false);
            }
        }
        for server in self.servers.clone() {
            self.world.resume_server(server);
        }
        self.wires.lost_per_mille = 0;
        self.wires.late_per_mille = 0;
        self.wires.most = self.wires.most.min(MS);
        let calm = self.wires;
        self.world.set_wires(|wires| *wires = calm);
    }
}
