//! A contender's way through the line, as in `contend/line.rs` of the backend.

use lock_zk::protocol::queue::{
    ContenderKind as Kind, QueuePosition as Standing, is_followed, is_news, marks, position as standing,
};

use super::{
    chore::Task,
    contender::{OwnWatch, Phase, What},
    fact::Seen,
    guard::Guard,
    message::{Answer, Op, Refusal, Reply},
    tree::News,
    view::View,
    world::World,
};

impl World<'_> {
    /// Where the own node stands, by the rules of the backend, less what was taken out of them.
    pub(super) fn view<'a>(&self, client: usize, slot: usize, children: &'a [String]) -> View<'a> {
        let this = &self.clients[client].slots[slot];
        View::new(children, &this.name, this.kind, |guard| self.has(guard))
    }

    pub(super) fn stand(&mut self, client: usize, slot: usize, children: &[String], zxid: u64, waited: bool) {
        let view = self.view(client, slot, children);
        let stands = match standing(view.names(), view.own()) {
            Standing::Behind(_) if !self.has(Guard::Predecessor) => Standing::Holds,
            Standing::Behind(ahead) => Standing::Behind(view.real(ahead)),
            other => other,
        };
        match stands {
            Standing::Gone => self.again(client, slot),
            Standing::Disagrees { .. } => {
                self.counts.add(Seen::Disagreed as usize);
                self.give_up(client, slot);
            }
            Standing::Holds => {
                if self.grant(client, slot, zxid) {
                    if waited {
                        self.counts.add(Seen::GrantedByLook as usize);
                    }
                    self.tell(client, slot, children);
                } else {
                    self.slot(client, slot).phase = Phase::Admission;
                    self.arm(client, slot, self.settings.tick / 4);
                }
            }
            Standing::Behind(_) | Standing::FirstBlocked if !self.slot(client, slot).waits => {
                self.give_up(client, slot);
            }
            Standing::Behind(ahead) => {
                let ahead = ahead.to_owned();
                self.set_watches_for(client, slot, ahead);
            }
            Standing::FirstBlocked => {
                self.slot(client, slot).phase = Phase::AtGate;
                self.ask_for(client, slot, Op::ListAndWatch, What::Gate);
            }
        }
    }

    pub(super) fn tell(&mut self, client: usize, slot: usize, children: &[String]) {
        let this = self.slot(client, slot);
        let (name, permit) = (this.name.clone(), matches!(this.kind, Kind::Permit { .. }));
        if permit && is_followed(children, &name) && self.has(Guard::GateTells) {
            self.counts.add(Seen::GateTold as usize);
            self.chore(client, Task::Announce(name));
        }
    }

    pub(super) fn set_watches_for(&mut self, client: usize, slot: usize, ahead: String) {
        self.counts.add(Seen::Waited as usize);
        self.say_of(client, slot, format_args!("waits for {ahead}"));
        let own = self.slot(client, slot).own == OwnWatch::None && self.has(Guard::OwnNodeWatch);
        let this = self.slot(client, slot);
        (this.watched, this.ahead_news) = (None, None);
        this.mine = (!own).then_some(Ok(Answer::Done));
        this.phase = Phase::SettingWatches { ahead: ahead.clone() };
        let name = this.name.clone();
        self.ask_for(client, slot, Op::Watch(ahead), What::Ahead);
        if own {
            self.ask_for(client, slot, Op::Watch(name), What::Own);
        }
    }

    /// One of the two watches was answered: they are looked at together.
    pub(super) fn watching(&mut self, client: usize, slot: usize) {
        let present = self.clients[client].session_id();
        let this = &mut self.clients[client].slots[slot];
        let Phase::SettingWatches { ahead } = this.phase.clone() else { return };
        // Each is registered when its answer comes: what it has to tell comes after that.
        if let Some(Ok(Answer::Node { session, .. })) = &this.mine
            && *session == present
            && this.own == OwnWatch::None
        {
            this.own = OwnWatch::Set;
            let name = this.name.clone();
            self.watch(client, Some(name), slot, true);
        } else if let Some(Ok(Answer::Node { .. })) = &this.watched
            && this.mine.is_none()
        {
            self.watch(client, Some(ahead.clone()), slot, false);
        }
        let this = &mut self.clients[client].slots[slot];
        let (Some(watched), Some(mine)) = (this.watched.clone(), this.mine.clone()) else { return };
        match mine {
            Ok(Answer::Node { session, .. }) if session != present => return self.again(client, slot),
            Err(Refusal::NoNode) => return self.again(client, slot),
            Err(_) => return self.look(client, slot),
            Ok(_) => {}
        }
        let Ok(Answer::Node { version, .. }) = watched else { return self.look(client, slot) };
        let now = (ahead.clone(), version);
        let news = is_news(&now, &this.heard);
        this.heard = now;
        if news && self.has(Guard::GateVersions) {
            return self.look(client, slot);
        }
        self.slot(client, slot).phase = Phase::Waiting { ahead: ahead.clone() };
        let heard = self.slot(client, slot).ahead_news.take();
        if heard.is_none() {
            self.watch(client, Some(ahead), slot, false);
        }
        match self.slot(client, slot).own {
            OwnWatch::Deleted => self.again(client, slot),
            OwnWatch::Changed => {
                self.slot(client, slot).own = OwnWatch::None;
                self.look(client, slot);
            }
            OwnWatch::None | OwnWatch::Set => {
                if let Some((news, zxid)) = heard {
                    self.ahead_changed(client, slot, &news, zxid);
                }
            }
        }
    }

    pub(super) fn at_gate(&mut self, client: usize, slot: usize, reply: Reply) {
        match reply {
            Ok(Answer::List(children)) => {
                let view = self.view(client, slot, &children);
                if standing(view.names(), view.own()) == Standing::FirstBlocked {
                    self.watch(client, None, slot, false);
                } else {
                    self.look(client, slot);
                }
            }
            Err(Refusal::NoNode) => self.again(client, slot),
            _ => self.look(client, slot),
        }
    }

    /// A watch has fired.
    pub(super) fn news(&mut self, client: usize, slot: usize, own: bool, news: &News, zxid: u64) {
        let this = &mut self.clients[client].slots[slot];
        if own {
            this.own = if matches!(news, News::Deleted(_)) { OwnWatch::Deleted } else { OwnWatch::Changed };
        }
        match this.phase {
            Phase::SettingWatches { .. } if !own => this.ahead_news = Some((news.clone(), zxid)),
            Phase::Waiting { .. } if own => {
                if this.own == OwnWatch::Deleted {
                    self.again(client, slot);
                } else {
                    this.own = OwnWatch::None;
                    self.look(client, slot);
                }
            }
            Phase::Waiting { .. } => self.ahead_changed(client, slot, news, zxid),
            Phase::AtGate if !own => self.look(client, slot),
            Phase::Holding if own => self.own_changed(client, slot),
            _ => {}
        }
    }

    pub(super) fn ahead_changed(&mut self, client: usize, slot: usize, news: &News, zxid: u64) {
        let handed_on = match news {
            News::Changed(name) => marks(name) || !self.has(Guard::OnlyWritersMark),
            News::Deleted(_) => !self.has(Guard::LookAfterDeletion),
            News::Children => false,
        };
        let of_lock = !matches!(self.slot(client, slot).kind, Kind::Permit { .. });
        if handed_on && of_lock && self.grant(client, slot, zxid) {
            self.counts.add(Seen::HandedOn as usize);
        } else {
            self.look(client, slot);
        }
    }
}
