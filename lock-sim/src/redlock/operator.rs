//! The operator: marks the servers, replaces members, and in the end completes what was begun.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use lock_core::Clock;
use lock_redlock::{InitOptions, Replaced, init_in, replace_in};
use tokio::sync::Notify;

use super::{INIT, REFUSED, REPLACED, RESET, Weather, config};
use crate::{
    contest::{Oracle, Stage},
    redis::address,
    world::{HostId, ServerId},
};

/// What the operator is to do, and what it has done.
#[derive(Debug)]
pub(super) struct Order {
    /// The members, as whoever connects now knows them.
    pub(super) members: Vec<ServerId>,
    /// Those of each generation so far.
    pub(super) generations: Vec<Vec<ServerId>>,
    /// A change of the members is wanted, or everything is to be completed.
    pub(super) wants: Arc<Notify>,
    pub(super) is_calm: bool,
    /// The servers are members, or the operator has given that up.
    pub(super) is_marked: bool,
    /// Marking the servers again has failed for long.
    pub(super) is_stuck: bool,
    /// Most members have lost all their data, and none knows of which generation it was: they can only be reset.
    pub(super) can_only_be_reset: bool,
    /// Servers that may not come back with their data.
    pub(super) to_empty: Vec<ServerId>,
    /// A member that a holder did not reach when it was granted the lock.
    pub(super) without_lease: Option<ServerId>,
}

/// The [`Order`] that the operator and all clients of a schedule share.
pub(super) type Orders = Rc<RefCell<Order>>;

impl Order {
    pub(super) fn new(members: Vec<ServerId>) -> Self {
        let generations = vec![members.clone()];
        Self {
            members,
            generations,
            wants: Arc::new(Notify::new()),
            is_calm: false,
            is_marked: false,
            is_stuck: false,
            can_only_be_reset: false,
            to_empty: Vec::new(),
            without_lease: None,
        }
    }

    fn replacing(&self, old: ServerId, new: ServerId) -> Vec<ServerId> {
        self.members.iter().map(|member| if *member == old { new } else { *member }).collect()
    }

    /// Clients may go on to the next generation before the operator hears that it is a majority's.
    fn begin(&mut self, old: ServerId, new: ServerId) {
        let next = self.replacing(old, new);
        if !self.generations.contains(&next) {
            self.generations.push(next);
        }
    }
}

pub(super) fn spawn(stage: &mut Stage, weather: &Weather, orders: &Orders) {
    let (host, weather, orders) = (stage.operator, *weather, Rc::clone(orders));
    let newcomers = stage.servers[weather.servers..].to_vec();
    let (context, oracle) = (stage.world.context(host), stage.oracle.clone());
    stage.world.spawn(host, async move {
        let clock = context.clock();
        let first = config(&weather, &orders.borrow().members, host);
        while let Err(error) = init_in(&first, InitOptions::new().with_no_holders(), context.clone()).await {
            oracle.note("operator", format_args!("marks: {error}"));
            clock.sleep(Duration::from_millis(50)).await;
            if crate::world::true_time() > weather.end / 2 {
                break;
            }
        }
        orders.borrow_mut().is_marked = true;
        let mut newcomers = newcomers.into_iter();
        let mut attempts = 0;
        // A change that was begun is completed before another one is.
        let mut begun: Option<(ServerId, ServerId)> = None;
        loop {
            let wants = Arc::clone(&orders.borrow().wants);
            if !orders.borrow().is_calm {
                wants.notified().await;
            }
            let is_calm = orders.borrow().is_calm;
            if begun.is_none() && !is_calm {
                let place = fastrand::usize(..weather.servers);
                let old = orders.borrow().members[place];
                begun = newcomers.next().map(|new| (old, new));
            }
            if let Some((old, new)) = begun {
                orders.borrow_mut().begin(old, new);
                let known = config(&weather, &orders.borrow().members, host);
                let [from, to] = [old, new].map(address);
                let changed = replace_in(&known, (&from.host, from.port), (&to.host, to.port), context.clone()).await;
                match changed {
                    Ok(replaced) => {
                        oracle.count(REPLACED);
                        oracle.note("operator", format_args!("{} replaces {}: {replaced:?}", new.place(), old.place()));
                        complete(&orders, old, new, &replaced);
                        begun = None;
                    }
                    Err(error) => {
                        oracle.count(REFUSED);
                        oracle.note("operator", format_args!("{} for {}: {error}", new.place(), old.place()));
                        if is_calm {
                            // Where a majority has lost its data, the servers are marked again before that; and where some
                            // were told of the change and others have lost their data, as a new deployment.
                            attempts += 1;
                            let mut options = InitOptions::new();
                            if attempts > 8 {
                                oracle.count(RESET);
                                options = options.with_reset();
                                begun = None;
                            }
                            drop(init_in(&known, options, context.clone()).await);
                            clock.sleep(Duration::from_nanos(2 * weather.max_ttl)).await;
                        }
                    }
                }
            } else if is_calm {
                return mark_again(&weather, &orders, host, context, clock, &oracle).await;
            }
        }
    });
}

fn complete(orders: &Orders, old: ServerId, new: ServerId, replaced: &Replaced) {
    let mut orders = orders.borrow_mut();
    orders.members = orders.replacing(old, new);
    if !replaced.old_was_told {
        orders.to_empty.push(old);
    }
}

async fn mark_again(
    weather: &Weather,
    orders: &Orders,
    host: HostId,
    context: lock_core::Context,
    clock: Clock,
    oracle: &Oracle,
) {
    for attempt in 0..60 {
        let known = config(weather, &orders.borrow().members, host);
        let mut options = InitOptions::new();
        if orders.borrow().can_only_be_reset {
            oracle.count(RESET);
            options = options.with_reset();
        }
        orders.borrow_mut().is_stuck = attempt >= 30;
        match init_in(&known, options, context.clone()).await {
            Ok(quiet) => {
                oracle.count(INIT);
                return oracle.note("operator", format_args!("has marked the servers: no votes for {quiet:?}"));
            }
            Err(error) => oracle.note("operator", format_args!("marks: {error}")),
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}
